// First script of each of Prefect's pages; it runs before the scripts of Prefect.
(() => {
  const hint = document.currentScript.dataset.hint;

  // Prefect's pages request settings from an analytics service and logos from other servers. The content security policy
  // blocks this with errors in the console; this script prevents the requests.
  const isForeign = (address) => {
    const url = new URL(address, location.href);
    return /^https?:$/.test(url.protocol) && url.origin !== location.origin;
  };
  const fetchAny = window.fetch;
  window.fetch = (request, ...options) =>
    isForeign(request instanceof Request ? request.url : request)
      ? Promise.reject(new TypeError("this page sends requests to its own server only"))
      : fetchAny(request, ...options);
  const source = Object.getOwnPropertyDescriptor(HTMLImageElement.prototype, "src");
  Object.defineProperty(HTMLImageElement.prototype, "src", {
    ...source,
    set(address) {
      if (!isForeign(address)) source.set.call(this, address);
    },
  });
  const setAttribute = Element.prototype.setAttribute;
  Element.prototype.setAttribute = function (name, value) {
    if (!(this instanceof HTMLImageElement && name === "src" && isForeign(value))) setAttribute.call(this, name, value);
  };

  // Prefect's login page suggests "admin:pass", which is never correct here.
  const explain = () => {
    const field = document.querySelector("form input[type=password]");
    if (!field || field.dataset.explained) return;
    field.dataset.explained = "yes";
    field.placeholder = "secret";
    const text = document.createElement("p");
    text.id = "secret-hint";
    text.textContent = hint;
    text.style.margin = "0 0 1rem";
    text.style.textAlign = "center";
    text.style.fontSize = "0.875rem";
    field.form.before(text);
  };
  new MutationObserver(explain).observe(document, { childList: true, subtree: true });
})();
