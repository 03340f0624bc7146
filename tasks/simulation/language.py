"""Made-up languages: what the texts of the twins are written in.

Three kinds of words make a text. Evidence: a phrase for each of SLOTS properties, one out of CHOICES; nothing else in
a text says anything about its label. Stock phrases: what is said in a topic anyway, some very often and most rarely
(Zipf), of words that do the same. Names: two words that make a text unique.

A linear model over words and pairs of words must learn the evidence from some 5,000 rows: what its penalty shrinks away
leaves a residual that depends on the label even where the truth has none. Hence few choices, each of them frequent;
phrases in a fixed order, said twice; and stock phrases in place of single words, since a pair of words that never comes
back only helps to learn the training rows by heart.
"""

import math
from typing import NamedTuple

import numpy as np

SLOTS = 6
CHOICES = 6
PHRASE = 3  # words in each
TOPICS = 12
STOCK = 60  # phrases of a topic
WORDS = 1500  # that stock phrases draw from

# Each begins with a consonant, so that three of them can be read in one way only.
SYLLABLES = {
    "us": "ba be bo da den di fa fin go ha hol ka ker la len li lo ma men mi na nor pa per ra ren ri sa sel ta ton va",
    "fr": "bé cha cœ da dou fé gne jou la lé lou mè mo na nê pa pé que ra ré rou sa sè ta té tou va vé voi ça",
}


class Language(NamedTuple):
    """The phrases of a language."""

    evidence: np.ndarray  # (SLOTS, CHOICES) str
    stock: np.ndarray  # (TOPICS, STOCK) str
    topics: np.ndarray  # (TOPICS,) str, one word each
    names: np.ndarray  # (m,) str, one word each


def make_language(tongue: str, texts: int, generator: np.random.Generator) -> Language:
    """A language with the sound of `tongue` (a key of SYLLABLES) and names enough to tell so many texts apart."""
    kinds = np.cumsum([PHRASE * SLOTS * CHOICES, WORDS, TOPICS])
    drawn = draw_words(tongue, kinds[-1] + 2 * math.isqrt(texts) + 2, generator)
    evidence, words, topics, names = np.split(drawn, kinds)
    stock = joined(words[zipf(WORDS, (TOPICS, STOCK, PHRASE), generator)])
    return Language(joined(evidence.reshape(SLOTS, CHOICES, PHRASE)), stock, topics, names)


def draw_words(tongue: str, count: int, generator: np.random.Generator) -> np.ndarray:
    """So many different words of three syllables, `(count,)` str."""
    syllables = np.array(SYLLABLES[tongue].split(), dtype=object)
    base = len(syllables)
    code = generator.choice(base**3, count, replace=False)
    return np.asarray(syllables[code // base**2] + syllables[code // base % base] + syllables[code % base])


def joined(words: np.ndarray) -> np.ndarray:
    """Texts `(..., m)` to texts `(...)`, a space between the m of each."""
    return np.asarray((words[..., :-1] + " ").sum(axis=-1) + words[..., -1])


def zipf(count: int, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    """Ranks 0..count-1 of the given shape, the r-th with weight 1/(r + 2)."""
    weight = np.cumsum(1 / np.arange(2, count + 2))
    return np.searchsorted(weight / weight[-1], generator.random(shape), side="right")


def title_texts(choice: np.ndarray, language: Language) -> np.ndarray:
    """A title for each candidate, no two alike: its names and its evidence, `choice (m, SLOTS)` of 0..CHOICES-1."""
    evidence = language.evidence[np.arange(SLOTS), choice]
    return joined(np.column_stack([name_texts(len(choice), language), evidence]))


def body_texts(choice: np.ndarray, topic: np.ndarray, language: Language, generator: np.random.Generator) -> np.ndarray:
    """A text for each candidate: its evidence `(m, SLOTS)` once more, and two stock phrases of its topic `(m,)`."""
    stock = language.stock[topic[:, None], zipf(STOCK, (len(topic), 2), generator)]
    return joined(np.column_stack([language.evidence[np.arange(SLOTS), choice], stock]))


def query_texts(topic: np.ndarray, language: Language) -> np.ndarray:
    """One text for each query `(q,)`, no two alike: its topic's word and its names."""
    return joined(np.column_stack([language.topics[topic], name_texts(len(topic), language)]))


def name_texts(count: int, language: Language) -> np.ndarray:
    """So many texts of two names, no two alike."""
    first, second = np.divmod(np.arange(count), base := math.isqrt(count) + 1)
    return joined(np.column_stack([language.names[first], language.names[len(language.names) - base + second]]))
