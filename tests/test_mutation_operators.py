"""The mutation operators of `make mutants` make the changes that their examples show."""

import pytest
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator

from tests.mutation.operators import OPERATORS

EXAMPLES = [(operator, example) for operator in OPERATORS for example in operator.examples()]


@pytest.mark.parametrize(("operator", "example"), EXAMPLES, ids=lambda value: getattr(value, "__name__", None))
def test_an_operator_makes_the_change_of_its_examples(operator: type[Operator], example: Example):
    mutated = mutate_code(example.pre_mutation_code, operator(), example.occurrence)
    assert mutated == example.post_mutation_code
