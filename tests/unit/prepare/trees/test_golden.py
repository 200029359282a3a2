"""Plans answer what the training libraries predicted, at thresholds, beside them, and far off."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.trees.cases import golden_cases
from snoozeml.prepare.trees.forest import Forest, View
from unit.prepare.trees.oracle import predict, run

TOLERANCE = 1e-6  # relative
CASES = golden_cases()

ODD_VALUES = (
    *(0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1.1754942e-38),
    *(1e-35, -1e-35, 1.0000001e-35, 9.999999e-36, 3.4028235e38, -3.4028235e38),
    *(-0.5, 0.5, 2.5, 31.0, 32.0, 63.99, -1.0, 16777216.0, 1e10),
)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_predicts_what_the_library_predicts(name: str) -> None:
    case = CASES[name]
    answers = run(*case.read(), case.features)
    for output, wanted in case.answers.items():
        got = answers[output]
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, rtol=TOLERANCE, atol=0, err_msg=output)


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_predicts_what_the_library_predicts(name: str) -> None:
    case = CASES[name]
    got = predict(*case.read(), case.features[::4])
    np.testing.assert_allclose(got, case.answers["predictions"][::4], rtol=TOLERANCE, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_a_row_is_answered_alike_alone_and_in_company(name: str) -> None:
    case = CASES[name]
    forest, link = case.read()
    together = run(forest, link, case.features[:5])["predictions"]
    alone = [run(forest, link, case.features[row : row + 1])["predictions"] for row in range(2)]
    # The engine's e^x of one double may differ from that of several in the last bit.
    np.testing.assert_allclose(np.concatenate(alone), together[:2], rtol=1e-15)


@pytest.mark.parametrize("archive", sorted({name.partition("/")[0] for name in CASES}))
def test_there_is_a_case_of_everything_that_we_say_is_supported(archive: str) -> None:
    ours = [case.read() for name, case in CASES.items() if name.startswith(f"{archive}/")]
    links = {link.name for _, link in ours}
    views = {int(view) for forest, _ in ours for tree in forest.trees for view in tree.view}
    assert {"identity", "exp", "sigmoid", "softmax"} <= links
    wanted = {View.PLAIN, View.CATEGORY}
    assert views >= (wanted | {View.ZERO_IS_MISSING} if "lightgbm" in archive else wanted)


@settings(max_examples=300)
@given(name=st.sampled_from(sorted(CASES)), data=st.data())
def test_any_floats_are_answered_as_node_by_node(name: str, data: st.DataObject) -> None:
    forest, link = CASES[name].read()
    values = st.one_of(
        st.floats(width=32), st.sampled_from(ODD_VALUES), st.sampled_from(_beside_splits(forest))
    )
    row = st.lists(values, min_size=forest.features, max_size=forest.features)
    features = np.array(data.draw(st.lists(row, min_size=1, max_size=4)), np.float32)
    got = run(forest, link, features)["predictions"]
    np.testing.assert_allclose(got, predict(forest, link, features), rtol=TOLERANCE, atol=1e-44)


def _beside_splits(forest: Forest) -> list[float]:
    found = np.concatenate([tree.split for tree in forest.trees])
    splits = found[np.abs(found) < 3e38].astype(np.float32)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    around = [splits, np.nextafter(splits, up), np.nextafter(splits, down)]
    return np.unique(np.concatenate(around)).tolist() or [0.0]
