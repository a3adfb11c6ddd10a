"""Frames and series of other packages over the memory of arrays: nothing is copied. What is missing is said, and skipped."""

import importlib
import sys
import unittest

import numpy as np

import outpage

LIMIT = 8 << 20
VALUES = 3 * LIMIT // 8


def needs(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"SKIPPED: there is no {name}", file=sys.stderr)
        raise unittest.SkipTest(f"there is no {name}")


def open_pager(**settings):
    try:
        return outpage.Pager(LIMIT, encrypt="off", **settings)
    except outpage.UserfaultfdError as error:
        raise unittest.SkipTest(f"SKIPPED: {error}")


def address(array):
    return array.__array_interface__["data"][0]


class Frames(unittest.TestCase):
    def test_a_frame_of_pandas_is_the_array(self):
        pandas = needs("pandas")
        with open_pager() as pager:
            table = pager.zeros((VALUES // 2, 2), order="F")
            table[:, 0] = np.arange(VALUES // 2) % 7
            table[:, 1] = np.arange(VALUES // 2)
            frame = pandas.DataFrame(table, columns=["key", "value"], copy=False)
            self.assertTrue(np.shares_memory(frame["value"].to_numpy(copy=False), table))
            sums = frame.groupby("key")["value"].sum()
            expected = [np.arange(key, VALUES // 2, 7).sum() for key in range(7)]
            self.assertEqual(sums.tolist(), expected)

    def test_an_array_of_arrow_is_the_array(self):
        pyarrow = needs("pyarrow")
        with open_pager() as pager:
            array = pager.zeros(VALUES, dtype="i8")
            array[:] = np.arange(VALUES)
            arrow = outpage.to_arrow(array)
            self.assertEqual(arrow.buffers()[1].address, address(array))
            self.assertEqual(pyarrow.compute.sum(arrow).as_py() if hasattr(pyarrow, "compute") else array.sum(), array.sum())
            array[5] = -1
            self.assertEqual(arrow[5].as_py(), -1)
            table = pyarrow.table({"value": arrow})
            self.assertEqual(table["value"].chunk(0).buffers()[1].address, address(array))
            with self.assertRaises(ValueError):
                outpage.to_arrow(array[::2])
            with self.assertRaises(ValueError):
                outpage.to_arrow(array.reshape(2, -1))
            with self.assertRaises(TypeError):
                outpage.to_arrow(pager.zeros(8, dtype="?"))
            del array
            pager.close()
            self.assertEqual(arrow[6].as_py(), 6)

    def test_a_series_of_polars_is_the_array(self):
        needs("pyarrow")
        polars = needs("polars")
        with open_pager() as pager:
            array = pager.zeros(VALUES, dtype="i8")
            array[:] = np.arange(VALUES)
            series = polars.from_arrow(outpage.to_arrow(array))
            self.assertEqual(series.to_numpy(allow_copy=False).__array_interface__["data"][0], address(array))
            frame = polars.DataFrame({"key": series % 5, "value": series})
            sums = frame.group_by("key").agg(polars.col("value").sum()).sort("key")["value"].to_list()
            self.assertEqual(sums, [np.arange(key, VALUES, 5).sum() for key in range(5)])

    def test_an_estimator_of_scikit_learn_learns_from_more_than_the_limit(self):
        linear = needs("sklearn.linear_model")
        with open_pager() as pager:
            features = pager.zeros((VALUES // 8, 8))
            features[:] = np.random.default_rng(1).normal(size=features.shape)
            weights = np.arange(8.0)
            targets = features @ weights
            model = linear.SGDRegressor(max_iter=5, tol=None, random_state=1)
            pager.advise(features, "sequential")
            for start in range(0, len(features), 4096):
                model.partial_fit(features[start : start + 4096], targets[start : start + 4096])
            np.testing.assert_allclose(model.coef_, weights, atol=0.1)
            self.assertGreater(pager.stats().page_ins, 1000)


if __name__ == "__main__":
    unittest.main()
