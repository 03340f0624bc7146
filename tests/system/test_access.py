"""Attacks on the servers from pages of other origins, rebound names and other users of the machine.

The pages run in Chromium. `make test-system` runs these tests.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import takewhile
from operator import itemgetter
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest

from tests.project_copy import (
    ROOT,
    clean_environment,
    copy_project,
    edit_params,
    run_module,
    shrink_params,
    start_module,
)
from tests.system.browser import open_browser, wait_until
from tests.system.served import RunningServer, free_port, is_answering, run_server

pytestmark = pytest.mark.system

NOBODY = 65534  # the number of the user without rights
ATTACK_TIMEOUT = 60  # seconds
PRIVATE = ("data", ".dvc", ".prefect")  # folders of a project
SHARED_MEMORY = Path("/dev/shm")
FACTS = ("name", "entrypoint", "pull_steps", "paused", "enforce_parameter_schema")

# Browsers send these without asking the server: a WebSocket, and a POST without a content type.
ATTACK = """
const [address, file, wait, done] = arguments;
const learned = {deployments: [], flow: null, seen: 0, closed: null};
const post = (place, body) => fetch(`http://${address}/api/${place}`,
    {method: "POST", mode: "no-cors", body: new Blob([JSON.stringify(body)])}).catch(() => null);
const socket = new WebSocket(`ws://${address}/api/events/out`);
socket.onopen = () => socket.send(JSON.stringify({type: "filter", filter: {
    occurred: {since: new Date(Date.now() - 864e5).toISOString()}, event: {prefix: ["prefect."]}}}));
socket.onclose = () => { learned.closed = true; setTimeout(() => done(learned), 2000); };
socket.onmessage = async ({data}) => {
    const event = JSON.parse(data).event, all = [event.resource, ...event.related];
    const id = (kind) => all.map(each => each["prefect.resource.id"]).find(id => id.startsWith(`prefect.${kind}.`));
    const deployment = id("deployment")?.split(".")[2], flow = id("flow")?.split(".")[2];
    learned.seen += 1;
    const name = all.find(each => each["prefect.resource.id"].endsWith(`.${deployment}`))?.["prefect.resource.name"];
    if (name !== "reliability") return;
    if (!learned.deployments.includes(deployment)) {
        learned.deployments.push(deployment);  // the events of a run of it tell its flow
        await post(`deployments/${deployment}/create_flow_run`, {parameters: {datasets: ["none"]}});
    }
    if (flow && !learned.flow) {
        learned.flow = flow;
        post("deployments/", {name, flow_id: flow, enforce_parameter_schema: false,
            entrypoint: "flows/serve.py:reliabilities",
            pull_steps: [{"prefect.deployments.steps.run_shell_script": {script: `touch ${file}`}}]});
        setInterval(() => post(`deployments/${deployment}/create_flow_run`, {parameters: {datasets: ["none"]}}), 5000);
    }
};
setTimeout(() => done(learned), wait * 1000);  // where it is not shut out
"""


class AttackerPage(BaseHTTPRequestHandler):
    """Page of another origin."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<html><body>hello</body></html>")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), AttackerPage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"evil.test:{server.server_port}"
        server.shutdown()


def make_project(folder: Path) -> Path:
    """Copy the project with a small twin to a folder that other users can enter."""
    for above in [folder, *folder.parents][:3]:
        above.chmod(0o755)

    def change(params: dict[str, Any]) -> None:
        shrink_params(params)
        del params["datasets"]["mine"]

    copy_project(folder, change)
    run_module(folder, "-c", "from tasks.records.store import make_private; make_private()")  # as `make setup` does
    return folder


@pytest.fixture(scope="module")
def unserved(tmp_path_factory) -> Path:
    return make_project(tmp_path_factory.mktemp("unserved"))


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[RunningServer]:
    with run_server(make_project(tmp_path_factory.mktemp("served"))) as running:
        yield running


@pytest.fixture
def browser(tmp_path):
    """Chromium in which every name under .test resolves to this machine, as after DNS rebinding."""
    with open_browser(tmp_path / "browser", "host-resolver-rules=MAP *.test 127.0.0.1") as driver:
        driver.set_script_timeout(ATTACK_TIMEOUT + 30)
        yield driver


def deployment_facts(served: RunningServer) -> list[tuple]:
    """Return the code and schedule state of each deployment."""
    return [*map(itemgetter(*FACTS), served.query("deployments"))]


@pytest.mark.parametrize("host", ["evil.test", "127.0.0.1", "localhost"])
def test_a_page_of_another_origin_can_neither_read_nor_run_anything(browser, hostile, served, tmp_path, host):
    owned = tmp_path / "owned"
    before = deployment_facts(served)
    browser.get(f"http://{hostile.replace('evil.test', host)}/")
    learned = browser.execute_async_script(ATTACK, served.address.removeprefix("http://"), str(owned), ATTACK_TIMEOUT)
    print(f"the page of {host} learned {learned}; its script ran: {owned.exists()}")
    assert not owned.exists(), f"the page has run a command; it learned {learned}"
    assert learned == {"deployments": [], "flow": None, "seen": 0, "closed": True}
    assert deployment_facts(served) == before
    assert not any(served.list_runs(name) for name, *_ in before)


def test_a_page_of_a_rebound_host_name_reads_nothing(browser, served):
    browser.get(f"http://evil.test:{served.port}/api/health")  # its own page there makes its scripts of that origin
    status, text = browser.execute_async_script(
        """const done = arguments[0];
        fetch("/api/deployments/filter", {method: "POST", body: "{}", headers: {"content-type": "application/json"}})
            .then(async answer => done([answer.status, await answer.text()]))"""
    )
    assert status == 401, f"the page reads {text[:300]}"
    assert "deployment" not in text


def test_a_page_of_another_origin_cannot_show_the_page_in_a_frame(browser, hostile, served):
    browser.get(f"http://{hostile.replace('evil.test', '127.0.0.1')}/")
    browser.execute_async_script(
        """const [address, done] = arguments;
        const frame = document.createElement("iframe");
        frame.onload = () => done();
        frame.src = address;
        document.body.append(frame);""",
        f"{served.address}/login",
    )
    browser.switch_to.frame(0)
    assert browser.execute_script("return document.URL") == "chrome-error://chromewebdata/"
    browser.switch_to.default_content()


def run_as_other_user(code: str) -> str:
    assert os.geteuid() == 0, "only root can act as another user; run this file as root"
    python = Path("/usr/bin/python3")  # the environment's own may be in a folder that is shut to others
    command = [str(python if python.exists() else sys.executable), "-I", "-c", code]
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": {}, "cwd": "/"}
    completed = subprocess.run(command, **other, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


STATUS = """
import json, urllib.request, urllib.error
headers = {{"content-type": "application/json"}} | {more}
ask = urllib.request.Request("{address}/api/deployments/filter", b"{{}}", headers)
try:
    print(urllib.request.urlopen(ask, timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


def status_for_other_user(address: str, **headers: str) -> str:
    return run_as_other_user(STATUS.format(address=address, more=headers))


READ = """
try:
    print(open({path!r}).read())
except PermissionError:
    print("refused")
"""


def test_another_user_can_neither_read_the_secret_nor_use_the_api(served):
    assert status_for_other_user(served.address) == "401"
    secret = served.project / "data/.state/secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    above = [*takewhile(lambda folder: folder != Path(tempfile.gettempdir()), secret.parents)]
    modes = [folder.stat().st_mode for folder in above]
    try:
        for folder in above:
            folder.chmod(0o755)  # so that it is the file itself that is shut
        assert run_as_other_user(READ.format(path=str(secret))) == "refused"
        assert run_as_other_user(READ.format(path=str(served.project / "params.yaml"))) != "refused"
    finally:
        for folder, mode in zip(above, modes, strict=True):
            folder.chmod(mode)
    assert served.secret not in served.log.read_text()
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    assert not any(served.secret in line for line in lines)  # everybody may read command lines


LIST_OPEN_PATHS = """
import json, os, stat, sys
found = []
for top in json.loads({folders!r}):
    for folder, folders, files in os.walk(top):
        for path in [folder, *(os.path.join(folder, name) for name in files)]:
            readable = os.access(path, os.R_OK) and os.path.isfile(path)
            if readable or os.access(path, os.W_OK):
                found.append(path)
print(json.dumps(found))
"""


def open_to_other_users(*folders: Path) -> list[str]:
    """Return the files that another user can read or change, and the folders that another user can change."""
    return json.loads(run_as_other_user(LIST_OPEN_PATHS.format(folders=json.dumps([str(each) for each in folders]))))


def make_shared_folder(parent: Path) -> Path:
    """Make a folder for temporary files that every user may use, as /tmp is."""
    shared = parent / "shared"
    shared.mkdir()
    for above in [shared, *shared.parents][:4]:
        above.chmod(0o755)
    shared.chmod(0o1777)
    return shared


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("flows.refresh", "dask"),
        ("flows.refresh", "thread"),
        ("dvc repro --force reliability@wands", "thread"),
        ("flows.verify", "thread"),
    ],
)
def test_another_user_can_open_no_file_or_folder_of_a_run(unserved, tmp_path, command, engine):
    """What is in the folders of the project, and what a run leaves in folders for temporary files."""
    shared = make_shared_folder(tmp_path)
    seeds = [1] if engine == "dask" else [2]  # so that both engines have something to do
    edit_params(unserved, lambda params: params.update(engine=engine, seeds=seeds))
    folders = [*(unserved / name for name in PRIVATE), shared, SHARED_MEMORY]
    before = set(open_to_other_users(SHARED_MEMORY))
    log = unserved / "run.log"
    process = start_module(unserved, *command.split(), log=log, TMPDIR=str(shared))
    seen: set[str] = set()
    try:
        while process.poll() is None:
            seen.update(open_to_other_users(*folders))
            time.sleep(2)
        assert process.returncode == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    assert seen - before == {str(shared)}
    assert set(open_to_other_users(*folders)) - before == {str(shared)}


def test_another_user_can_open_no_file_or_folder_of_a_server_and_its_runs(tmp_path):
    shared = make_shared_folder(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    make_project(project)
    folders = [*(project / name for name in PRIVATE), shared, SHARED_MEMORY]
    before = set(open_to_other_users(SHARED_MEMORY))
    seen: set[str] = set()

    def has_ended() -> bool:
        seen.update(open_to_other_users(*folders))
        return any(run["state_type"] == "FAILED" for run in running.list_runs("reliability"))

    with run_server(project, TMPDIR=str(shared)) as running:
        deployment = running.find_deployment_id("reliability")
        unknown = {"parameters": {"datasets": ["nowhere"]}}
        running.request("POST", f"deployments/{deployment}/create_flow_run", unknown)
        wait_until(has_ended)
    seen.update(open_to_other_users(*folders))
    assert seen - before == {str(shared)}


TAKE_PORT = """
import socket, sys
listener = socket.create_server(("127.0.0.1", {port}))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    request = connection.recv(65536).decode()
    print(request.splitlines()[0], "authorization" in request.lower(), flush=True)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 4\\r\\nconnection: close\\r\\n\\r\\ntrue")
    connection.close()
"""


FIND_SERVER = """
import os
from flows import server
from tasks.provenance.lock import hold_lock
with hold_lock("serve"):
    server.find_server()
print(os.environ.get("PREFECT_API_URL"), "PREFECT_API_AUTH_STRING" in os.environ)
"""


def test_a_port_that_another_user_has_taken_receives_no_secret(unserved):
    """As after the end of a server whose address is still recorded."""
    port = free_port()
    state = unserved / "data/.state"
    state.mkdir(parents=True, exist_ok=True)
    (state / "server.json").write_text(json.dumps({"api_url": f"http://127.0.0.1:{port}/api"}))
    (state / "secret").write_text("the secret")
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": {}, "cwd": "/"}
    command = ["/usr/bin/python3", "-I", "-c", TAKE_PORT.format(port=port)]
    with subprocess.Popen(command, **other, stdout=subprocess.PIPE, text=True) as attacker:
        assert attacker.stdout.readline() == "listening\n"
        assert run_module(unserved, "-c", FIND_SERVER).split() == ["None", "False"]
        assert attacker.stdout.readline() == "GET /api/health HTTP/1.1 False\n"
        attacker.kill()
    for name in ("server.json", "secret"):
        (state / name).unlink()


REPLACE_STATE = """
import os, pickle, sqlite3
class RunCode:
    def __reduce__(self):
        return os.open, ({owned!r}, os.O_CREAT)
state = {state!r}
os.umask(0)
try:
    os.rename(state, state + ".away")
    os.makedirs(state + "/links")
    with sqlite3.connect(state + "/links/cache.db") as database:
        database.execute("CREATE TABLE Settings (key TEXT NOT NULL UNIQUE, value)")
        database.execute("CREATE TABLE Cache (rowid INTEGER PRIMARY KEY, key BLOB, raw INTEGER, store_time REAL, "
            "expire_time REAL, access_time REAL, access_count INTEGER DEFAULT 0, tag BLOB, size INTEGER DEFAULT 0, "
            "mode INTEGER DEFAULT 0, filename TEXT, value BLOB)")
        database.execute("INSERT INTO Cache (key, raw, value) VALUES (?, 0, 1)", [pickle.dumps(RunCode())])
    print("replaced")
except PermissionError:
    print("refused")
"""
STATE_FOLDER = "from dvc.repo import Repo; print(Repo().site_cache_dir)"


@pytest.mark.parametrize(
    ("is_set_up", "place"), [(False, "."), (True, "."), (True, "docs")], ids=["new clone", "set up", "subfolder"]
)
def test_another_user_cannot_replace_the_state_of_dvc(tmp_path, is_set_up, place):
    """DVC unpickles what is in its state, so whoever can write there runs code."""
    for above in [tmp_path, *tmp_path.parents][:3]:
        above.chmod(0o755)
    subprocess.run(["git", "clone", "-q", str(ROOT), "clone"], cwd=tmp_path, umask=0o022, check=True)
    clone = tmp_path / "clone"
    if is_set_up:
        run_module(clone, "-c", "from tasks.records.store import make_private; make_private()")
    options = {"cwd": clone / place, "env": clean_environment(), "umask": 0o022, "capture_output": True}
    command = [sys.executable, "-c", STATE_FOLDER]
    state = (clone / place / subprocess.run(command, **options, text=True, check=True).stdout.strip()).resolve()
    assert state.parent == clone / ".dvc/tmp/site/repo"
    owned = tmp_path / "owned"
    attack = REPLACE_STATE.format(state=str(state), owned=str(owned))
    assert run_as_other_user(attack) == "refused"
    (clone / ".dvc").chmod(0o755)  # so that it is the folder itself that is shut
    assert run_as_other_user(attack) == "refused"
    subprocess.run([sys.executable, "-m", "dvc", "checkout"], **options, check=False)
    assert not owned.exists()


@pytest.mark.parametrize(
    "command", ["flows.refresh reliability@wands", "dvc repro reliability@wands -f", "flows.reliability wands --seed 1"]
)
def test_the_temporary_server_of_a_run_is_protected(unserved, command):
    log = unserved / "run.log"
    process = start_module(unserved, *command.split(), log=log)
    try:
        port = wait_until(lambda: port_of_server(process, log))
        address = f"http://127.0.0.1:{port}"
        assert status_for_other_user(address) == "401"
        assert process.wait(300) == 0, log.read_text()
        wait_until(lambda: not psutil.pid_exists(process.pid) and not is_answering(port), timeout=20)
    finally:
        process.kill()
        process.wait()


def port_of_server(process: subprocess.Popen, log: Path) -> int | None:
    """Return the port at which a server of a child process answers; None if none does yet."""
    assert process.poll() is None, log.read_text()
    for child in psutil.Process(process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # or a zombie
            sockets = [each for each in child.net_connections("tcp4") if each.status == psutil.CONN_LISTEN]
            for port in (each.laddr.port for each in sockets):
                if is_answering(port):
                    return port
    return None
