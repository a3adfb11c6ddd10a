"""Arrays of more than the limit, their contents compared with those of ordinary arrays."""

import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
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

    def test_advice_changes_no_element(self):
        with open_pager() as pager:
            array = pager.zeros(VALUES)
            array[:] = np.arange(VALUES)
            for advice in ["sequential", "random", "will-need", "cold", "normal"]:
                pager.advise(array, advice)
                np.testing.assert_array_equal(array, np.arange(VALUES))
            with self.assertRaisesRegex(ValueError, "will-need"):
                pager.advise(array, "soon")
            before = pager.residency(array[-LIMIT // 32 :])
            pager.advise(array[-LIMIT // 32 :], "cold")
            after = pager.residency(array[-LIMIT // 32 :])
            self.assertGreater(before.resident, after.resident)

    def test_pinned_elements_stay(self):
        # Pages of one value take no room in a pool of compressed pages, and others need not leave for them.
        with open_pager(tier="none") as pager:
            array = pager.zeros(VALUES)
            array[:] = 1
            hot = array[: LIMIT // 32]
            with pager.pin(hot) as same:
                self.assertIs(same, hot)
                array[LIMIT // 32 :] = 2
                where = pager.residency(hot)
                self.assertEqual((where.paged_out, where.untouched), (0, 0))
                with self.assertRaises(outpage.PinnedError):
                    with pager.pin(array[: VALUES // 2]):
                        self.fail("more than half of the limit")
            # What was refused as a victim is tried again at the pager's next tick, which may be after the first of these passes.
            for _ in range(100):
                array[LIMIT // 32 :] = 3
                if pager.residency(hot).paged_out:
                    break
                time.sleep(0.01)
            self.assertGreater(pager.residency(hot).paged_out, 0)
            self.assertEqual(array.sum(), LIMIT // 32 + 3 * (VALUES - LIMIT // 32))

    def test_what_is_out_is_known(self):
        with open_pager() as pager:
            array = pager.zeros(VALUES)
            self.assertIsNone(pager.array_stats(array).went_out)
            subscription = pager.subscribe(array)
            with self.assertRaises(OSError):
                pager.subscribe(array)
            array[:] = 1
            is_out: dict[int, bool] = {}
            # What is on its way leaves or comes between two questions: asked again until nothing does.
            for _ in range(1000):
                out = {first for first in range(0, VALUES, 512) if subscription.is_out(first)}
                is_out.update(subscription.changes())
                changed = {first for first, now in is_out.items() if now}
                stats = pager.array_stats(array)
                whole = pager.stats()
                paged_out = stats.residency.paged_out
                if changed == out and len(out) == paged_out == stats.went_out - stats.came_back:
                    break
            self.assertEqual(changed, out)
            self.assertEqual(len(out), stats.residency.paged_out)
            self.assertEqual(stats.went_out - stats.came_back, stats.residency.paged_out)
            self.assertEqual((stats.major_faults, stats.minor_faults), (whole.major_faults, whole.minor_faults))
            with self.assertRaises(IndexError):
                subscription.is_out(VALUES)
            del subscription
            part = pager.subscribe(array[300:600])
            self.assertEqual(set(part.changes()) - {0, 212}, set())

    def test_a_call_comes_before_elements_leave(self):
        with open_pager() as pager:
            array = pager.zeros(VALUES)
            heard, wrong = set(), []

            def leaving(part):
                heard.update(range(part.start, part.stop, 512))
                if array[part.start] not in (0, 1):
                    wrong.append(part)
                if len(heard) == 512:
                    raise ValueError("passed over")

            with pager.watch(array, leaving):
                with self.assertRaises(OSError), pager.watch(array, print):
                    pass
                array[:] = 1
                residency = pager.residency(array)
                self.assertGreater(residency.paged_out, 100)
                for _ in range(600):
                    if len(heard) >= residency.paged_out:
                        break
                    time.sleep(0.1)
            self.assertGreaterEqual(len(heard), residency.paged_out)
            self.assertEqual(wrong, [])
            count = len(heard)
            array[:] = 2
            self.assertEqual(len(heard), count)

    def test_growing_arrays_grow_without_a_copy(self):
        with open_pager() as pager:
            growing = pager.growing("i8")
            self.assertEqual((len(growing), growing.view().size), (0, 0))
            for start in range(0, VALUES, 1000):
                growing.extend(np.arange(start, min(VALUES, start + 1000)))
            growing.append(-1)
            self.assertEqual(len(growing), VALUES + 1)
            np.testing.assert_array_equal(growing.view()[:-1], np.arange(VALUES))
            held = growing.view()
            with self.assertRaises(BufferError):
                growing.resize(100 * VALUES)
            with self.assertRaises(BufferError):
                growing.resize(5)
            self.assertEqual((len(growing), held[-1]), (VALUES + 1, -1))
            del held
            growing.resize(5)
            growing.resize(VALUES)
            view = growing.view()
            self.assertEqual((view[:6].tolist(), view.sum()), ([0, 1, 2, 3, 4, 0], 10))
            with self.assertRaises(ValueError):
                growing.resize(-1)
            del view
            pin = growing._region.pin(0, 4096)
            with self.assertRaises(BufferError):
                growing.resize(100 * VALUES)
            pin.release()
            pin.release()
            growing.resize(4 * VALUES)
            self.assertEqual(growing.view().sum(), 10)

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
