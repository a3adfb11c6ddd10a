//! The module `outpage._outpage`: what `outpage` is made of. A region is a buffer of bytes, of which numpy makes arrays.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::path::PathBuf;
use std::ptr;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use outpage::{Advice, Error, Memory, PinnedBytes};
use pyo3::create_exception;
use pyo3::exceptions::{PyBufferError, PyException, PyOSError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

create_exception!(
    outpage,
    OutpageError,
    PyException,
    "Something was not done."
);
create_exception!(
    outpage,
    SettingError,
    OutpageError,
    "No such setting, or a wrong value."
);
create_exception!(
    outpage,
    UserfaultfdError,
    OutpageError,
    "This process gets no userfaultfd."
);
create_exception!(
    outpage,
    SwapError,
    OutpageError,
    "The swap file cannot be had."
);
create_exception!(outpage, BoundsError, OutpageError, "Outside of the region.");
create_exception!(
    outpage,
    PinnedError,
    OutpageError,
    "More than half of the limit would be pinned."
);
create_exception!(
    outpage,
    LostError,
    OutpageError,
    "The bytes of pages are lost."
);
create_exception!(outpage, EndedError, OutpageError, "The pager has ended.");
create_exception!(
    outpage,
    ForkedError,
    OutpageError,
    "The caller is a forked child."
);

fn raise(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Setting(_) => SettingError::new_err(text),
        Error::Userfaultfd(_) => UserfaultfdError::new_err(text),
        Error::Swap(_) => SwapError::new_err(text),
        Error::Bounds => BoundsError::new_err(text),
        Error::Pinned => PinnedError::new_err(text),
        Error::Lost(_) => LostError::new_err(text),
        Error::Ended(_) => EndedError::new_err(text),
        Error::Forked => ForkedError::new_err(text),
        Error::Io(error) => PyErr::from(error),
        Error::Os(_, number) => PyOSError::new_err((number, text)),
        _ => OutpageError::new_err(text),
    }
}

/// A pager.
#[pyclass(frozen, module = "outpage._outpage")]
struct Pager(outpage::Pager);

#[pymethods]
impl Pager {
    #[new]
    fn new(py: Python<'_>, limit: u64, settings: Vec<(String, String)>) -> PyResult<Self> {
        let mut builder = outpage::Pager::builder(limit);
        for (name, value) in settings {
            builder = builder.set(&name, value);
        }
        py.detach(|| builder.open()).map(Self).map_err(raise)
    }

    fn region(&self, py: Python<'_>, bytes: usize) -> PyResult<Region> {
        let memory = py.detach(|| self.0.memory(bytes)).map_err(raise)?;
        Ok(Region::of(memory))
    }

    fn region_from_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<Region> {
        let region = py.detach(|| self.0.from_file::<u8>(path)).map_err(raise)?;
        Ok(Region::of(region.into_memory()))
    }

    #[getter]
    fn limit(&self) -> u64 {
        self.0.limit()
    }

    fn stats(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        let stats = py.detach(|| self.0.stats()).map_err(raise)?;
        let mut all = vec![("limit_bytes", stats.limit_bytes)];
        all.extend(stats.each());
        Ok(all)
    }
}

/// Bytes of a pager's, as a buffer that arrays are made of. They are there as long as a buffer of them is, and stay where they are as long.
#[pyclass(frozen, module = "outpage._outpage")]
struct Region {
    memory: RwLock<Memory>,
    /// Buffers and pins that there are. Changed by whoever reads `memory`, so that it stays while somebody changes that.
    lent: Mutex<usize>,
}

impl Region {
    const fn of(memory: Memory) -> Self {
        Self {
            memory: RwLock::new(memory),
            lent: Mutex::new(0),
        }
    }

    fn memory(&self) -> RwLockReadGuard<'_, Memory> {
        self.memory.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, or one less, has the memory where it is.
    fn lend(&self, change: isize) {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        *lent = lent.saturating_add_signed(change);
    }

    /// Makes a call that may take long, with other Python threads at work.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&Memory) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        py.detach(|| act(&self.memory())).map_err(raise)
    }
}

#[pymethods]
impl Region {
    #[getter]
    fn address(&self) -> usize {
        self.memory().as_ptr().addr()
    }

    fn __len__(&self) -> usize {
        self.memory().len()
    }

    /// Not while there are buffers of it, which may lie elsewhere afterwards.
    fn resize(&self, py: Python<'_>, bytes: usize) -> PyResult<()> {
        let resized = py.detach(|| {
            let mut memory = self.memory.write().unwrap_or_else(PoisonError::into_inner);
            let lent = *self.lent.lock().unwrap_or_else(PoisonError::into_inner);
            (lent == 0).then(|| memory.resize(bytes))
        });
        match resized {
            None => Err(PyBufferError::new_err(
                "there are arrays or pins of this memory: it cannot be resized",
            )),
            Some(result) => result.map_err(raise),
        }
    }

    fn prefault(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        self.call(py, |memory| memory.prefault(start..end))
    }

    fn advise(&self, py: Python<'_>, start: usize, end: usize, advice: usize) -> PyResult<()> {
        let advice = Advice::ALL.get(advice).copied();
        let advice = advice.ok_or_else(|| PyValueError::new_err("there is no such advice"))?;
        self.call(py, |memory| memory.advise(start..end, advice))
    }

    fn discard(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        self.call(py, |memory| memory.discard(start..end))
    }

    fn take_back(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<Vec<usize>> {
        self.call(py, |memory| memory.take_back(start..end))
    }

    fn clear(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        self.call(py, |memory| memory.clear(start..end))
    }

    /// Pages that are untouched, resident, staged, paged out and lost.
    fn residency(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<[usize; 5]> {
        let counted = self.call(py, |memory| memory.residency(start..end))?;
        Ok(numbers(&counted))
    }

    /// The same of all of it, and since it was subscribed to the pages that went out and came back, and the major and minor faults.
    fn stats(&self, py: Python<'_>) -> PyResult<([usize; 5], Option<[u64; 4]>)> {
        let stats = self.call(py, Memory::stats)?;
        let traffic = stats.traffic.map(|traffic| {
            let faults = [traffic.major_faults, traffic.minor_faults];
            [traffic.out, traffic.back, faults[0], faults[1]]
        });
        Ok((numbers(&stats.residency), traffic))
    }

    fn subscribe(&self, py: Python<'_>) -> PyResult<Subscription> {
        let subscription = self.call(py, Memory::subscribe)?;
        Ok(Subscription(Mutex::new(subscription)))
    }

    /// Has `leaving` called with the first byte and the end of pages that are about to leave.
    fn watch(&self, py: Python<'_>, leaving: Py<PyAny>) -> PyResult<Watch> {
        let call = move |bytes: Range<usize>| {
            // None where the interpreter is on its way out.
            Python::try_attach(|py| {
                if let Err(error) = leaving.call1(py, (bytes.start, bytes.end)) {
                    error.write_unraisable(py, Some(leaving.bind(py)));
                }
            });
        };
        let watch = self.call(py, |memory| memory.watch(call))?;
        Ok(Watch(Mutex::new(Some(watch))))
    }

    fn pin(slf: Bound<'_, Self>, start: usize, end: usize) -> PyResult<Pin> {
        let region = slf.get();
        region.lend(1);
        let pinned = region.call(slf.py(), |memory| memory.pin(start..end));
        if pinned.is_err() {
            region.lend(-1);
        }
        Ok(Pin {
            pages: Mutex::new(Some(pinned?)),
            region: slf.unbind(),
        })
    }

    /// # Safety
    /// Called by Python, with a view of its own.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view"));
        }
        let region = slf.get();
        // Until the view is counted nobody resizes it.
        let memory = region.memory();
        let (start, bytes) = (memory.as_ptr().cast::<c_void>(), memory.len());
        let bytes = isize::try_from(bytes).map_err(|_| PyValueError::new_err("too large"))?;
        // SAFETY: the view is the caller's; the memory stays where it is as long as a view is counted, and there as long as `slf`, which the view holds.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes, 0, flags) };
        if filled == 0 {
            region.lend(1);
            return Ok(());
        }
        // SAFETY: as above; a view without an owner is none.
        unsafe { (*view).obj = ptr::null_mut() };
        Err(PyErr::fetch(slf.py()))
    }

    /// # Safety
    /// Called by Python, once for each view that was given.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.lend(-1);
    }
}

fn numbers(residency: &outpage::Residency) -> [usize; 5] {
    let outpage::Residency {
        untouched,
        resident,
        staged,
        paged_out,
        lost,
    } = *residency;
    [untouched, resident, staged, paged_out, lost]
}

/// Pages that stay in RAM until they are released, or this is gone.
#[pyclass(frozen, module = "outpage._outpage")]
struct Pin {
    pages: Mutex<Option<PinnedBytes>>,
    region: Py<Region>,
}

impl Pin {
    fn end(&self) {
        let pages = self
            .pages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if pages.is_some() {
            drop(pages);
            self.region.get().lend(-1);
        }
    }
}

#[pymethods]
impl Pin {
    fn release(&self) {
        self.end();
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.end();
    }
}

/// Which pages of a region are out.
#[pyclass(frozen, module = "outpage._outpage")]
struct Subscription(Mutex<outpage::Subscription>);

#[pymethods]
impl Subscription {
    fn is_out(&self, at: usize) -> bool {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.is_out(at)
    }

    /// The first byte of each page that changed since the last time, and whether it is out now.
    fn drain(&self) -> Vec<(usize, bool)> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changes = Vec::new();
        told.drain(|at, out| changes.push((at, out)));
        changes
    }
}

/// Has a function called before pages of a region leave.
#[pyclass(frozen, module = "outpage._outpage")]
struct Watch(Mutex<Option<outpage::Watch>>);

impl Watch {
    /// A call that is under way waits for the interpreter, which the caller has.
    fn end(&self, py: Python<'_>) {
        let watch = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(watch));
    }
}

#[pymethods]
impl Watch {
    fn close(&self, py: Python<'_>) {
        self.end(py);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        Python::try_attach(|py| self.end(py));
    }
}

/// Text of a size, as "2G", in bytes.
#[pyfunction]
fn parse_size(text: &str) -> PyResult<u64> {
    outpage::parse_size(text).map_err(raise)
}

#[pymodule]
fn _outpage(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Pager>()?;
    module.add_class::<Region>()?;
    module.add_class::<Pin>()?;
    module.add_class::<Subscription>()?;
    module.add_class::<Watch>()?;
    module.add_function(wrap_pyfunction!(parse_size, module)?)?;
    let py = module.py();
    for (name, exception) in [
        ("OutpageError", py.get_type::<OutpageError>()),
        ("SettingError", py.get_type::<SettingError>()),
        ("UserfaultfdError", py.get_type::<UserfaultfdError>()),
        ("SwapError", py.get_type::<SwapError>()),
        ("BoundsError", py.get_type::<BoundsError>()),
        ("PinnedError", py.get_type::<PinnedError>()),
        ("LostError", py.get_type::<LostError>()),
        ("EndedError", py.get_type::<EndedError>()),
        ("ForkedError", py.get_type::<ForkedError>()),
    ] {
        module.add(name, exception)?;
    }
    Ok(())
}
