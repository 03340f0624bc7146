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
            definition="The label that the model predicts never changes. A reliability map only estimates the "
            "probability that each decision is correct.",
        ),
        Concept(
            name="label-wise-reliability",
            title="Label-wise reliability",
            definition="The reliability is the estimated probability that a decision is correct, given its confidence "
            "and its label. A confidence that is calibrated on average can be too high for one label and too low for "
            "another.",
        ),
        Concept(
            name="reliability-map",
            title="What a map contains",
            definition="A calibrator that sees all logits, and on its confidence a monotone curve for each label "
            "(MRP), partially pooled with the other labels. Every map is fitted in this way, whatever the number of "
            "rows.",
        ),
        Concept(
            name="guarantees",
            title="Guarantees",
            definition="A guarantee on a threshold fails for at most 5% of random samples of labelled rows. It assumes "
            "that new rows have the same distribution, that rows are independent, and that the threshold was not "
            "chosen by looking at the same rows.",
        ),
        Concept(
            name="intervals",
            title="Intervals",
            definition="A 95% interval reflects the random sampling of rows or groups for a fitted map; it does not "
            "cover refitting or other data. A pointwise interval is valid for one number that was chosen in advance, "
            "not for the best of many.",
        ),
        Concept(
            name="simulated-and-real-data",
            title="Simulated and real data",
            definition="Simulated data contain effects that the simulation adds. Results on them show that the "
            "pipeline works, but not how the method performs on the real data set of the same name.",
        ),
    )
}
