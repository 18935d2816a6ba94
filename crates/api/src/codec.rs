//! Values as bytes: packed, in field order, integers big-endian, `f64` in the order of the host.

use crate::schema::{Array, Type};

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// They end too early.
    Short,
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the message is too short")
    }
}

impl std::error::Error for WireError {}

/// Takes values from the front of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn bytes(&mut self, n: usize) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.0.split_at_checked(n).ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(WireError::Short)?;
        self.0 = rest;
        Ok(*taken)
    }
}

/// A value that fields can have.
pub trait Wire: Sized {
    /// Its type in descriptions.
    const TYPE: Type;
    /// Least size, bytes.
    const SIZE: usize;

    /// Takes one.
    ///
    /// # Errors
    /// Bytes that end too early.
    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError>;

    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
}

macro_rules! integers {
    ($($ty:ident)*) => {$(
        impl Wire for $ty {
            const TYPE: Type = Type::plain(stringify!($ty));
            const SIZE: usize = size_of::<Self>();

            fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
                Ok(Self::from_be_bytes(reader.array()?))
            }

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}

integers!(u8 u16 u32 u64 i8 i16 i32 i64);

impl Wire for bool {
    const TYPE: Type = Type::plain("bool");
    const SIZE: usize = 1;

    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(u8::get(reader)? != 0)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }
}

impl Wire for f64 {
    const TYPE: Type = Type::plain("f64");
    const SIZE: usize = 8;

    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self::from_ne_bytes(reader.array()?))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_ne_bytes());
    }
}

impl<T: Wire + Default, const N: usize> Wire for [T; N] {
    const TYPE: Type = Type { array: Array::Fixed(N), ..T::TYPE };
    const SIZE: usize = N * T::SIZE;

    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut all: Self = std::array::from_fn(|_| T::default());
        for one in &mut all {
            *one = T::get(reader)?;
        }
        Ok(all)
    }

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|one| one.put(out));
    }
}

/// `N` bytes; for arrays that are longer than those that have a [`Default`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bytes<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> From<&[u8]> for Bytes<N> {
    /// The first bytes; zeros behind.
    fn from(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        let length = bytes.len().min(N);
        all.0[..length].copy_from_slice(&bytes[..length]);
        all
    }
}

impl<const N: usize> Wire for Bytes<N> {
    const TYPE: Type = Type { array: Array::Fixed(N), ..u8::TYPE };
    const SIZE: usize = N;

    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self(reader.array()?))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

/// Text in `N` bytes, zero-padded. What does not fit is cut at a character; what is not UTF-8 is read as replacement
/// characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text<const N: usize>(pub String);

impl<const N: usize> Text<N> {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const N: usize> From<&str> for Text<N> {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<const N: usize> Wire for Text<N> {
    const TYPE: Type = Type { name: "string", array: Array::Text(N), definition: None };
    const SIZE: usize = N;

    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let bytes = reader.bytes(N)?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self(String::from_utf8_lossy(text).into_owned()))
    }

    fn put(&self, out: &mut Vec<u8>) {
        // The last byte stays zero: some clients look for the end.
        let fits = self.0.floor_char_boundary(N.saturating_sub(1));
        let end = out.len() + N;
        out.extend_from_slice(self.0.get(..fits).unwrap_or_default().as_bytes());
        out.resize(end, 0);
    }
}

impl Wire for String {
    const TYPE: Type = Type { name: "string", array: Array::OpenText, definition: None };
    const SIZE: usize = 4;

    fn get(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let length = u32::get(reader)? as usize;
        let bytes = reader.bytes(length)?;
        // Some clients count a terminator, some do not.
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self::from_utf8_lossy(text).into_owned())
    }

    fn put(&self, out: &mut Vec<u8>) {
        let length = u32::try_from(self.len()).unwrap_or(u32::MAX);
        length.put(out);
        out.extend_from_slice(self.as_bytes().get(..length as usize).unwrap_or_default());
    }
}

/// Values that are as many as an earlier field says.
pub trait Many: Sized {
    /// Type of one.
    const ONE: Type;

    /// Takes `n`.
    ///
    /// # Errors
    /// Bytes that end too early; nothing is allocated for values that cannot be there.
    fn get_many(reader: &mut Reader<'_>, n: usize) -> Result<Self, WireError>;

    /// Appends those of them that a count of `width` bytes can tell, and stores that count at `at`.
    fn put_many(&self, out: &mut Vec<u8>, at: usize, width: usize);
}

impl<T: Wire> Many for Vec<T> {
    const ONE: Type = T::TYPE;

    fn get_many(reader: &mut Reader<'_>, n: usize) -> Result<Self, WireError> {
        let least = n.checked_mul(T::SIZE).ok_or(WireError::Short)?;
        if least > reader.0.len() {
            return Err(WireError::Short);
        }
        (0..n).map(|_| T::get(reader)).collect()
    }

    fn put_many(&self, out: &mut Vec<u8>, at: usize, width: usize) {
        let most = u64::MAX.checked_shr(64 - 8 * width as u32).unwrap_or(u64::MAX);
        let n = (self.len() as u64).min(most);
        let count = n.to_be_bytes();
        if let (Some(to), Some(from)) = (out.get_mut(at..at + width), count.get(8 - width..)) {
            to.copy_from_slice(from);
        }
        self.iter().take(n as usize).for_each(|one| one.put(out));
    }
}
