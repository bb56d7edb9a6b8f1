//! One bit for each of very many things.

/// A set of indexes below a fixed bound. Beyond it nothing is in the set, and nothing can be put in.
#[derive(Debug)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Room for at least `len` indexes, none of them set.
    pub(crate) fn new(len: usize) -> Self {
        Bits(vec![0; len.div_ceil(64)])
    }

    /// How many indexes there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.0.len() * 64
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word & (1 << (index % 64)) != 0)
    }

    pub(crate) fn insert(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    pub(crate) fn remove(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word &= !(1 << (index % 64));
        }
    }
}
