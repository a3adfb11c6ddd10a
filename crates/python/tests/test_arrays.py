"""Arrays of more than the limit, their contents compared with those of ordinary arrays."""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

import outpage

LIMIT = 8 << 20
VALUES = 3 * LIMIT // 8


def open_pager(**settings):
    try:
        return outpage.Pager(LIMIT, encrypt="off", **settings)
    except outpage.UserfaultfdError as error:
        raise unittest.SkipTest(f"SKIPPED: {error}")


class Arrays(unittest.TestCase):
    def test_more_than_the_limit_holds_what_it_was_given(self):
        with open_pager() as pager:
            array = pager.zeros(VALUES)
            self.assertEqual((array.shape, array.dtype, array.any()), ((VALUES,), np.float64, False))
            array[:] = np.arange(VALUES)
            array[::-1].sort()
            np.testing.assert_array_equal(array, np.arange(VALUES)[::-1])
            stats = pager.stats()
            self.assertGreater(stats.page_outs, 1000)
            self.assertLessEqual(stats.peak_pages * 4096, LIMIT)
            counted = pager.residency(array)
            self.assertEqual(counted.resident + counted.staged + counted.paged_out, VALUES // 512)
            self.assertIn("page_outs", stats._repr_html_())

    def test_arrays_outlive_their_pager_and_views_their_arrays(self):
        pager = open_pager()
        view = pager.empty((VALUES // 8, 8), dtype="f8", order="F")[:, 3]
        self.assertTrue(pager.zeros((2, 3), order="F").flags.f_contiguous)
        pager.close()
        with self.assertRaises(ValueError):
            pager.zeros(1)
        view[:] = 7
        self.assertEqual(view.sum(), 7 * VALUES // 8)

    def test_files_are_read(self):
        with open_pager() as pager, tempfile.NamedTemporaryFile() as file:
            values = np.random.default_rng(1).integers(0, 1 << 60, VALUES)
            values.tofile(file.name)
            np.testing.assert_array_equal(pager.from_file(file.name, "i8"), values)
            self.assertEqual(pager.from_file(file.name, "i8", (VALUES // 2, 2)).shape, (VALUES // 2, 2))
            file.truncate(9)
            with self.assertRaises(ValueError):
                pager.from_file(file.name, "i8")
        with self.assertRaises(FileNotFoundError):
            pager = open_pager()
            pager.from_file("/there/is/none")

    def test_discarded_elements_are_as_they_were_or_told(self):
        with open_pager() as pager:
            array = pager.zeros(VALUES)
            array[:] = np.arange(1, VALUES + 1)
            half = array[: VALUES // 2]
            pager.discard(half)
            self.assertTrue((array[VALUES // 2 :] == np.arange(VALUES // 2 + 1, VALUES + 1)).all())
            lost = pager.take_back(half)
            self.assertTrue(lost)
            expected = np.arange(1.0, VALUES // 2 + 1)
            for part in lost:
                expected[part] = 0
            np.testing.assert_array_equal(half, expected)
            pager.clear(array[100:-100])
            self.assertEqual(np.count_nonzero(array[100:-100]), 0)
            self.assertEqual(array[-1], VALUES)
            pager.prefault(array[:512])

    def test_errors_are_those_of_the_library(self):
        pager = open_pager()
        for wrong, error in [
            (lambda: outpage.Pager("4K"), outpage.SettingError),
            (lambda: outpage.Pager("much"), outpage.SettingError),
            (lambda: outpage.Pager(LIMIT, reclaim="nobody"), outpage.SettingError),
            (lambda: pager.zeros(5, dtype=object), TypeError),
            (lambda: pager.zeros(-5), ValueError),
            (lambda: pager.zeros((-5, -1)), ValueError),
            (lambda: pager.zeros(1 << 60), OSError),
            (lambda: pager.discard(np.zeros(5)), TypeError),
            (lambda: pager.discard(pager.zeros(10)[::2]), ValueError),
        ]:
            with self.assertRaises(error):
                wrong()
        self.assertTrue(issubclass(outpage.EndedError, outpage.OutpageError))
        full = open_pager(swap_cap="16M")
        array = full.zeros(2 * VALUES)
        array[:] = 1
        with self.assertRaises(outpage.EndedError):
            full.stats()
        self.assertEqual(array.sum(), 2 * VALUES)

    def test_threads_fault_side_by_side(self):
        pagers = [open_pager() for _ in range(2)]
        wrong = []

        def work(pager, seed):
            array = pager.zeros(VALUES)
            array[:] = seed
            if array.sum() != seed * VALUES:
                wrong.append(seed)

        threads = [threading.Thread(target=work, args=(pagers[i % 2], i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_forked_child_is_told(self):
        pager = open_pager()
        child = os.fork()
        if child == 0:
            try:
                pager.zeros(5)
            except outpage.ForkedError:
                os._exit(0)
            os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_the_quick_start_of_readme_runs(self):
        open_pager()
        readme = pathlib.Path(__file__).parents[3].joinpath("README.md").read_text()
        program = readme.split("```python\n")[1].split("```")[0]
        told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual((told.stderr, told.stdout.split()[0]), ("", "23999999.0"))

    def test_the_command_is_found_or_missed(self):
        environment = {**os.environ, "OUTPAGE": "/bin/echo"}
        command = [sys.executable, "-m", "outpage", "run", "--memory", "4G"]
        told = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual(told.stdout, "run --memory 4G\n")
        environment = {"PATH": "/nowhere"}
        missed = subprocess.run(command, env=environment, capture_output=True, text=True)
        self.assertEqual((missed.returncode, missed.stdout), (127, ""))


if __name__ == "__main__":
    unittest.main()
