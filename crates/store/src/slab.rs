//! A table of fixed size whose entries are named by index.

/// Holds up to a fixed number of values; never allocates after construction.
pub(crate) struct Slab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let mut slab = Self {
            entries: Vec::new(),
            free: Vec::with_capacity(capacity),
        };
        slab.entries.resize_with(capacity, || None);
        slab.clear();
        slab
    }

    /// The index that the value got.
    ///
    /// # Panics
    /// When the table is full.
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self
            .free
            .pop()
            .expect("the caller checks that there is room");
        self.entries[index as usize] = Some(value);
        u64::from(index)
    }

    /// # Panics
    /// When nothing has this index.
    pub(crate) fn remove(&mut self, index: u64) -> T {
        let value = self.entries[index as usize]
            .take()
            .expect("an index in use");
        self.free.push(index as u32);
        value
    }

    pub(crate) fn get_mut(&mut self, index: u64) -> &mut T {
        self.entries[index as usize]
            .as_mut()
            .expect("an index in use")
    }

    /// The first value that `pick` wants, taken out.
    pub(crate) fn take_first(&mut self, mut pick: impl FnMut(&T) -> bool) -> Option<T> {
        let found = self
            .entries
            .iter()
            .position(|e| e.as_ref().is_some_and(&mut pick))?;
        Some(self.remove(found as u64))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.fill_with(|| None);
        self.free.clear();
        self.free.extend((0..self.entries.len() as u32).rev());
    }
}
