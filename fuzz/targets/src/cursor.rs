//! Choices taken from the front of the input; zero once it has ended.

pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    pub fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, at| word | u64::from(self.byte()) << (8 * at))
    }

    /// Small as a rule, anything now and then.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            0xff => self.word(),
            0xfe => self.word() >> (self.byte() % 64),
            byte => u64::from(byte),
        }
    }

    /// Up to `most` bytes, as many as the next one says.
    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let count = (self.byte() as usize).min(most).min(self.0.len());
        let (taken, rest) = self.0.split_at(count);
        self.0 = rest;
        taken
    }
}
