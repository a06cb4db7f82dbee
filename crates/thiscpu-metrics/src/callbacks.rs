//! Values that closures return, among them those of other languages.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

use crate::{
    error::Kind,
    name,
    shown::{Description, Number, Observation, Shown},
};

/// A closure that returns the value of a counter or gauge, as its name says, or none.
pub(crate) struct Value<F>(pub(crate) F);

impl<F: Fn() -> Option<i64> + Send + Sync> Shown for Value<F> {
    fn series(&self, name: &str) -> Vec<Description> {
        vec![Description::by_name(name)]
    }

    fn observe(&self, _: &[i64], out: &mut Observation) {
        out.numbers.push((self.0)().map(Number::Signed));
    }
}

/// A closure that returns the value of a gauge.
pub(crate) struct Closure<F>(pub(crate) F);

impl<F: Fn() -> f64 + Send + Sync> Shown for Closure<F> {
    fn series(&self, name: &str) -> Vec<Description> {
        vec![Description::new(Kind::Gauge, name.to_owned(), "")]
    }

    fn observe(&self, _: &[i64], out: &mut Observation) {
        out.push(Number::Float((self.0)()));
    }
}

/// A closure that stores the values of several series at once, for C.
#[derive(Debug)]
pub struct CallbackValues<F> {
    label: String,
    label_values: Vec<String>,
    store: F,
}

impl<F: Fn(&mut [i64]) -> bool + Send + Sync> CallbackValues<F> {
    /// Shows a series for each value of a label.
    ///
    /// `store` returns whether it has stored all values.
    pub fn new(label: &str, label_values: &[&str], store: F) -> CallbackValues<F> {
        let label_values = label_values.iter().map(|&value| value.to_owned()).collect();
        CallbackValues { label: label.to_owned(), label_values, store }
    }
}

impl<F: Fn(&mut [i64]) -> bool + Send + Sync> Shown for CallbackValues<F> {
    fn series(&self, name: &str) -> Vec<Description> {
        labeled(name, &self.label, &self.label_values)
    }

    fn observe(&self, _: &[i64], out: &mut Observation) {
        let mut values = vec![0; self.label_values.len()];
        let are_stored = (self.store)(&mut values);
        out.numbers
            .extend(values.into_iter().map(|value| are_stored.then_some(Number::Signed(value))));
    }
}

/// Returns a series of a name for each value of a label.
pub(crate) fn labeled(name: &str, label: &str, values: &[String]) -> Vec<Description> {
    let each = |value: &String| Description::by_name(name).label(label, value.clone());
    values.iter().map(each).collect()
}

/// A closure that passes ids and values, of which the largest are shown, for C.
#[derive(Debug)]
pub struct CallbackTop<E, N> {
    label: String,
    count: usize,
    each: E,
    name: N,
}

impl<E, N> CallbackTop<E, N>
where
    E: Fn(&mut dyn FnMut(u64, i64)) -> bool + Send + Sync,
    N: Fn(u64) -> String + Send + Sync,
{
    /// Shows the `count` largest values. `name` returns the label's value for an id.
    ///
    /// `each` returns whether it has passed all values.
    pub fn new(label: &str, count: usize, each: E, name: N) -> CallbackTop<E, N> {
        CallbackTop { label: label.to_owned(), count, each, name }
    }
}

impl<E, N> Shown for CallbackTop<E, N>
where
    E: Fn(&mut dyn FnMut(u64, i64)) -> bool + Send + Sync,
    N: Fn(u64) -> String + Send + Sync,
{
    fn series(&self, name: &str) -> Vec<Description> {
        Largest::<u64>::series(name, &self.label)
    }

    fn has_samples(&self) -> bool {
        true
    }

    fn observe(&self, _: &[i64], out: &mut Observation) {
        let mut largest = Largest::new(self.count);
        if (self.each)(&mut |id, value| largest.push(value, id, id)) {
            largest.observe(&self.label, &self.name, out);
        }
    }
}

/// The largest of any number of values, without those that are 0.
pub(crate) struct Largest<T> {
    /// The smallest of them is on top.
    heap: BinaryHeap<Reverse<Sample<T>>>,
    count: usize,
}

/// A value of an item. Of equal values, that with the lower id counts as larger.
struct Sample<T> {
    value: i64,
    id: u64,
    item: T,
}

impl<T> Largest<T> {
    pub(crate) fn new(count: usize) -> Largest<T> {
        Largest { heap: BinaryHeap::new(), count }
    }

    /// Returns a series that stands for all of them.
    pub(crate) fn series(name: &str, label: &str) -> Vec<Description> {
        // The label's value is that of none of them; it checks the label's name.
        vec![Description::by_name(name).label(label, "0".to_owned())]
    }

    pub(crate) fn push(&mut self, value: i64, id: u64, item: T) {
        if value != 0 {
            self.heap.push(Reverse(Sample { value, id, item }));
            if self.heap.len() > self.count {
                self.heap.pop();
            }
        }
    }

    /// Adds samples, the largest first, each with the label's value that `name` returns.
    pub(crate) fn observe(self, label: &str, name: impl Fn(T) -> String, out: &mut Observation) {
        out.samples.extend(self.heap.into_sorted_vec().into_iter().map(|Reverse(sample)| {
            (name::inside_braces(&[(label, &name(sample.item))]), Number::Signed(sample.value))
        }));
    }
}

impl<T> Sample<T> {
    fn key(&self) -> (i64, Reverse<u64>) {
        (self.value, Reverse(self.id))
    }
}

impl<T> PartialEq for Sample<T> {
    fn eq(&self, other: &Sample<T>) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Sample<T> {}

impl<T> PartialOrd for Sample<T> {
    fn partial_cmp(&self, other: &Sample<T>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Sample<T> {
    fn cmp(&self, other: &Sample<T>) -> Ordering {
        self.key().cmp(&other.key())
    }
}
