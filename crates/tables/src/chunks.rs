//! A copy-on-write array by small numbers, for snapshots of something that changes one element at a time: a copy shares all chunks,
//! and a change copies the chunk that it is in. Beside 16,384 elements that is 256 counts of references and 64 elements.

use std::sync::Arc;

/// Elements of a chunk.
const CHUNK: usize = 64;

/// Elements by number; those that were never set are [`Default`].
#[derive(Clone, Debug)]
pub struct Chunks<T>(Vec<Option<Arc<[T; CHUNK]>>>);

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone + Default> Chunks<T> {
    /// An element; nothing where its chunk was never written to.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.0.get(at / CHUNK)?.as_ref()?.get(at % CHUNK)
    }

    /// An element, to be changed; copies of the array keep what they have.
    pub fn get_mut(&mut self, at: usize) -> &mut T {
        if self.0.len() <= at / CHUNK {
            self.0.resize(at / CHUNK + 1, None);
        }
        let chunk = self.0[at / CHUNK].get_or_insert_with(|| Arc::new(std::array::from_fn(|_| T::default())));
        &mut Arc::make_mut(chunk)[at % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_keeps_what_it_has_and_shares_what_did_not_change() {
        let mut chunks = Chunks::default();
        for at in 0..1000 {
            *chunks.get_mut(at) = at;
        }
        let copy = chunks.clone();
        *chunks.get_mut(500) = 7;
        assert_eq!((chunks.get(500), copy.get(500), copy.get(999)), (Some(&7), Some(&500), Some(&999)));
        assert_eq!((chunks.get(1023), chunks.get(1024)), (Some(&0), None));
        let shared = |(a, b): (&Option<Arc<_>>, &Option<Arc<_>>)| Arc::ptr_eq(a.as_ref().unwrap(), b.as_ref().unwrap());
        assert_eq!(chunks.0.iter().zip(&copy.0).filter(|pair| !shared(*pair)).count(), 1);
    }
}
