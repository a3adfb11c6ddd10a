//! The module `outpage._outpage`: what `outpage` is made of. A region is a buffer of bytes, of which numpy makes arrays.

use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use std::ptr;

use outpage::{Error, Memory};
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
        Ok(Region { memory })
    }

    fn region_from_file(&self, py: Python<'_>, path: PathBuf) -> PyResult<Region> {
        let region = py.detach(|| self.0.from_file::<u8>(path)).map_err(raise)?;
        let memory = region.into_memory();
        Ok(Region { memory })
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

/// Bytes of a pager's, as a buffer that arrays are made of. They are there as long as a buffer of them is.
#[pyclass(frozen, module = "outpage._outpage")]
struct Region {
    memory: Memory,
}

#[pymethods]
impl Region {
    #[getter]
    fn address(&self) -> usize {
        self.memory.as_ptr().addr()
    }

    fn __len__(&self) -> usize {
        self.memory.len()
    }

    fn prefault(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        py.detach(|| self.memory.prefault(start..end))
            .map_err(raise)
    }

    fn discard(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        py.detach(|| self.memory.discard(start..end)).map_err(raise)
    }

    fn take_back(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<Vec<usize>> {
        py.detach(|| self.memory.take_back(start..end))
            .map_err(raise)
    }

    fn clear(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<()> {
        py.detach(|| self.memory.clear(start..end)).map_err(raise)
    }

    /// Pages that are untouched, resident, staged, paged out and lost.
    fn residency(&self, py: Python<'_>, start: usize, end: usize) -> PyResult<[usize; 5]> {
        let counted = py
            .detach(|| self.memory.residency(start..end))
            .map_err(raise)?;
        let outpage::Residency {
            untouched,
            resident,
            staged,
            paged_out,
            lost,
        } = counted;
        Ok([untouched, resident, staged, paged_out, lost])
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
        let (start, bytes) = {
            let memory = &slf.get().memory;
            (memory.as_ptr().cast::<c_void>(), memory.len())
        };
        let bytes = isize::try_from(bytes).map_err(|_| PyValueError::new_err("too large"))?;
        // SAFETY: the view is the caller's; the memory stays where it is as long as `slf`, which the view holds, for nothing here resizes it.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes, 0, flags) };
        if filled == 0 {
            return Ok(());
        }
        // SAFETY: as above; a view without an owner is none.
        unsafe { (*view).obj = ptr::null_mut() };
        Err(PyErr::fetch(slf.py()))
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
