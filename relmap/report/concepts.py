"""Definitions of the concepts that report pages use; each has a page in the documentation."""

from dataclasses import dataclass

DOCUMENTATION = "docs/concepts"


@dataclass(frozen=True)
class Concept:
    """A concept with its definition.

    Attributes:
        name: Name of its page in the documentation, and of its anchor on a report page.
        title: The term.
        definition: One or two sentences.
    """

    name: str
    title: str
    definition: str

    @property
    def page(self) -> str:
        """Path of its page in the documentation, without a suffix."""
        return f"{DOCUMENTATION}/{self.name}"


CONCEPTS = {
    concept.name: concept
    for concept in (
        Concept(
            name="fixed-decisions",
            title="Fixed decisions",
            definition="The label that the model decides for never changes. A reliability map only estimates the "
            "probability that each decision is correct.",
        ),
        Concept(
            name="label-wise-reliability",
            title="Label-wise reliability",
            definition="The reliability is the estimated probability that a decision is correct, given its confidence "
            "and its label. A confidence can be right on average, and still be too high for one label and too low for "
            "another.",
        ),
        Concept(
            name="auto",
            title="What auto chooses",
            definition="With the variant auto, the fit compares candidate models by their log loss on rows that each "
            "fit has not seen. It takes the candidate with the lowest loss; with logits, it takes the score of the "
            "whole vector unless another candidate is better by more than two standard errors.",
        ),
        Concept(
            name="guarantees",
            title="Guarantees",
            definition="A guarantee is a statement about a threshold that fails in at most 5% of random samples of "
            "labelled rows. It assumes that new rows are like these and drawn independently, and that nobody chose the "
            "threshold by looking at the same rows.",
        ),
        Concept(
            name="intervals",
            title="Intervals",
            definition="A 95% interval covers the random sampling of the rows or of their groups, for a map that is "
            "already fitted; it does not cover another fit or other data. A pointwise interval holds for one number "
            "that was chosen in advance, not for the best of many.",
        ),
        Concept(
            name="simulated-and-real-data",
            title="Simulated and real data",
            definition="Simulated data contain effects that the simulation put in. Results on them show that the "
            "pipeline works, and nothing about the real data set of the same name.",
        ),
    )
}
