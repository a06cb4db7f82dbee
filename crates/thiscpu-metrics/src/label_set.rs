//! Labels as types of the program, and how their values are visited.

use std::{
    fmt::{Display, Write},
    hash::Hasher,
};

/// The labels of the series of a [`Family`](crate::Family), as a type of the program.
///
/// The type may borrow the values: a family copies those of a new series, and only hashes and
/// compares those of a known one.
///
/// ```
/// use thiscpu_metrics::{LabelSet, LabelValues};
///
/// struct Request<'a> {
///     path: &'a str,
///     status: u16,
/// }
///
/// impl LabelSet for Request<'_> {
///     type Static = Request<'static>;
///     const NAMES: &'static [&'static str] = &["path", "status"];
///
///     #[inline]
///     fn push_values(&self, values: &mut impl LabelValues) {
///         values.push(self.path);
///         values.push_display(self.status);
///     }
/// }
/// ```
pub trait LabelSet {
    /// This type, with the lifetime `'static` for what it borrows.
    type Static: LabelSet + 'static;

    /// The names of the labels.
    const NAMES: &'static [&'static str];

    /// Pushes the value of each label, in the order of `NAMES`.
    ///
    /// Each call for equal labels must push equal values. An empty value stands for no label. A
    /// look-up calls this twice, so it should be inlined.
    fn push_values(&self, values: &mut impl LabelValues);
}

/// A receiver of the values of labels.
///
/// This trait is sealed: other crates cannot implement it.
pub trait LabelValues: Sink {
    /// Pushes the value of the next label.
    #[inline]
    fn push(&mut self, value: &str) {
        self.begin();
        self.write(value);
        self.end();
    }

    /// Pushes the value of the next label, such as a number, as it is displayed.
    ///
    /// Each look-up formats it, some 20 ns.
    #[inline]
    fn push_display(&mut self, value: impl Display) {
        struct Writer<'a, S: ?Sized>(&'a mut S);
        impl<S: Sink + ?Sized> Write for Writer<'_, S> {
            fn write_str(&mut self, text: &str) -> std::fmt::Result {
                self.0.write(text);
                Ok(())
            }
        }
        self.begin();
        // If `value` fails in the middle, its beginning is the value.
        let _ = write!(Writer(self), "{value}");
        self.end();
    }
}

impl<S: Sink + ?Sized> LabelValues for S {}

/// The part of [`LabelValues`] that other crates cannot implement.
pub trait Sink {
    /// Begins a value.
    #[doc(hidden)]
    fn begin(&mut self);

    /// Appends to the value.
    #[doc(hidden)]
    fn write(&mut self, text: &str);

    /// Ends the value.
    #[doc(hidden)]
    fn end(&mut self);
}

/// A family's copy of values: each behind its length.
pub(crate) type Values = Box<[u8]>;

/// The bytes of the length of a value.
const LENGTH_BYTES: usize = size_of::<u64>();

/// Hashes values.
pub(crate) struct Hashing<H> {
    pub(crate) hasher: H,
    count: usize,
}

impl<H: Hasher> Hashing<H> {
    /// Returns the hash of labels.
    ///
    /// # Panics
    ///
    /// If there are not as many values as names.
    #[inline]
    pub(crate) fn hash<L: LabelSet>(labels: &L, hasher: H) -> u64 {
        let mut all = Hashing { hasher, count: 0 };
        labels.push_values(&mut all);
        let (count, names) = (all.count, L::NAMES);
        assert!(count == names.len(), "{count} values were pushed for the labels {names:?}");
        all.hasher.finish()
    }
}

impl<H: Hasher> Sink for Hashing<H> {
    #[inline]
    fn begin(&mut self) {
        self.count += 1;
    }

    #[inline]
    fn write(&mut self, text: &str) {
        // Without a separator: values are compared anyway, and most hashers mix the length in.
        self.hasher.write(text.as_bytes());
    }

    #[inline]
    fn end(&mut self) {}
}

/// Compares values with a copy.
struct Comparing<'a> {
    /// The rest of the current value in the copy.
    value: &'a [u8],
    /// What follows it.
    rest: &'a [u8],
    is_equal: bool,
}

/// Returns whether the values of labels are those of a copy.
#[inline]
pub(crate) fn are_equal<L: LabelSet>(labels: &L, copy: &Values) -> bool {
    let mut all = Comparing { value: &[], rest: copy, is_equal: true };
    labels.push_values(&mut all);
    all.is_equal && all.rest.is_empty()
}

impl Sink for Comparing<'_> {
    #[inline]
    fn begin(&mut self) {
        match split_value(self.rest) {
            Some((value, rest)) => (self.value, self.rest) = (value, rest),
            None => self.is_equal = false,
        }
    }

    #[inline]
    fn write(&mut self, text: &str) {
        match self.value.split_at_checked(text.len()) {
            Some((value, rest)) => {
                self.is_equal &= is_same(value, text.as_bytes());
                self.value = rest;
            }
            None => self.is_equal = false,
        }
    }

    #[inline]
    fn end(&mut self) {
        self.is_equal &= self.value.is_empty();
    }
}

/// Compares bytes of one length. Short ones, as most values are, take no call.
#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    match a.len() {
        4..8 => a.first_chunk::<4>() == b.first_chunk() && a.last_chunk::<4>() == b.last_chunk(),
        8..=16 => a.first_chunk::<8>() == b.first_chunk() && a.last_chunk::<8>() == b.last_chunk(),
        _ => a == b,
    }
}

/// Splits the first value off a copy.
#[inline]
fn split_value(copy: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = copy.split_first_chunk()?;
    rest.split_at_checked(u64::from_ne_bytes(*length) as usize)
}

/// Copies values.
#[derive(Default)]
struct Copying {
    bytes: Vec<u8>,
    /// Where the length of the current value is.
    length_at: usize,
}

/// Returns a copy of the values of labels.
pub(crate) fn copy<L: LabelSet>(labels: &L) -> Values {
    let mut all = Copying::default();
    labels.push_values(&mut all);
    all.bytes.into()
}

impl Sink for Copying {
    fn begin(&mut self) {
        self.length_at = self.bytes.len();
        self.bytes.extend([0; LENGTH_BYTES]);
    }

    fn write(&mut self, text: &str) {
        self.bytes.extend(text.as_bytes());
    }

    fn end(&mut self) {
        let length = self.bytes.len() - self.length_at - LENGTH_BYTES;
        let bytes = &mut self.bytes[self.length_at..][..LENGTH_BYTES];
        bytes.copy_from_slice(&(length as u64).to_ne_bytes());
    }
}

/// Returns the labels with these names and a copy of values.
pub(crate) fn pairs<'a>(
    names: &'a [&'static str],
    mut copy: &'a [u8],
) -> impl Iterator<Item = (&'a str, &'a str)> {
    names.iter().map_while(move |&name| {
        let (value, rest) = split_value(copy)?;
        copy = rest;
        // The bytes of a value are those of strings.
        Some((name, std::str::from_utf8(value).unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two<'a>(&'a str, &'a str);

    impl LabelSet for Two<'_> {
        type Static = Two<'static>;
        const NAMES: &'static [&'static str] = &["a", "b"];

        fn push_values(&self, values: &mut impl LabelValues) {
            values.push(self.0);
            values.push_display(format_args!("{}{}", &self.1[..self.1.len() / 2], {
                &self.1[self.1.len() / 2..]
            }));
        }
    }

    #[test]
    fn copies_are_equal_if_all_values_are() {
        // Of lengths that are compared in different ways, and with a difference at either end.
        let long: Vec<String> = [5, 8, 15, 16, 17, 40]
            .iter()
            .flat_map(|&length| {
                [("x", "y"), ("y", "x"), ("y", "y")]
                    .map(|(first, last)| format!("{first}{}{last}", "x".repeat(length - 2)))
            })
            .collect();
        let short = ["", "x", "xy", "xyz", "\0", "\0\0\0\0\0\0\0\0"];
        let all: Vec<&str> = short.into_iter().chain(long.iter().map(|text| &**text)).collect();
        let pairs_of_values: Vec<_> =
            all.iter().flat_map(|a| all.iter().map(|b| (*a, *b))).collect();
        for &(a, b) in &pairs_of_values {
            let values = copy(&Two(a, b));
            assert_eq!(pairs(Two::NAMES, &values).collect::<Vec<_>>(), [("a", a), ("b", b)]);
            for &(c, d) in &pairs_of_values {
                let is_equal = are_equal(&Two(c, d), &values);
                assert_eq!(is_equal, (a, b) == (c, d), "{a:?}, {b:?}; {c:?}, {d:?}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "1 values were pushed for the labels [\"a\", \"b\"]")]
    fn values_of_fewer_labels_are_refused() {
        struct One;
        impl LabelSet for One {
            type Static = One;
            const NAMES: &'static [&'static str] = &["a", "b"];

            fn push_values(&self, values: &mut impl LabelValues) {
                values.push("");
            }
        }
        Hashing::hash(&One, std::hash::DefaultHasher::new());
    }
}
