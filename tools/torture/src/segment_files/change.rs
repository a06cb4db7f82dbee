//! The change of each image, which follows from the seed and the image's number.

use std::env;
use std::fs;

use fastrand::Rng;

/// A page, of which a file may be a multiple.
const PAGE: usize = 4096;
/// The bytes of the header, all of which count as used.
const HEADER: usize = 192;

/// Images, and the bytes that are used in at least one of them.
pub(super) struct Changes<'a> {
    pub(super) images: &'a [Vec<u8>],
    used: Vec<usize>,
    seed: u64,
}

/// A change of one image.
pub(super) struct Change {
    /// The number of the image that is changed.
    pub(super) image: usize,
    /// The places of changed bytes, and their new values.
    pub(super) bytes: Vec<(usize, Vec<u8>)>,
    /// The length to which the file is cut.
    pub(super) length: Option<usize>,
    /// Whether this happens while the segment is attached.
    pub(super) is_late: bool,
}

impl Changes<'_> {
    pub(super) fn new(images: &[Vec<u8>], seed: u64) -> Changes<'_> {
        let is_used = |&at: &usize| {
            let word = at & !7..(at & !7) + 8;
            at < HEADER || images.iter().any(|image| image[word.clone()] != [0; 8])
        };
        let used = (0..images[0].len()).filter(is_used).collect();
        Changes { images, used, seed }
    }

    /// Returns the change of that number.
    ///
    /// Of eight, three change the next byte of all bytes, and three the next one that is used. So
    /// 700,000 images change each byte of a file of 256 KiB.
    pub(super) fn nth(&self, number: u64) -> Change {
        let mut random = Rng::with_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (group, nth) = (number / 8, number % 8);
        let image = random.usize(..self.images.len());
        let len = self.images[image].len();
        let next = |of: usize| ((3 * group + nth % 3) % of as u64) as usize;
        let mut change =
            Change { image, bytes: vec![], length: None, is_late: random.u32(..4) == 0 };
        match nth {
            0..3 => change.bytes.push(self.byte(image, next(len), &mut random)),
            3..6 => {
                change.bytes.push(self.byte(image, self.used[next(self.used.len())], &mut random));
            }
            6 => {
                for _ in 0..random.usize(2..5) {
                    let at = self.used[random.usize(..self.used.len())];
                    change.bytes.push(match random.bool() {
                        true => self.byte(image, at, &mut random),
                        false => (at & !7, hostile_word(&mut random, len).to_le_bytes().into()),
                    });
                }
            }
            _ => {
                let edge = random.usize(..=len / PAGE) * PAGE;
                change.length = Some(match random.u32(..4) {
                    0 => random.usize(..2 * len),
                    1 => (edge + random.usize(..16)).saturating_sub(8),
                    _ => edge,
                });
            }
        }
        change
    }

    /// Returns another value for a byte.
    fn byte(&self, image: usize, at: usize, random: &mut Rng) -> (usize, Vec<u8>) {
        let bits = match random.bool() {
            true => 1 << random.u32(..8),
            false => random.u8(1..),
        };
        (at, vec![self.images[image][at] ^ bits])
    }

    /// Writes the changed image of that number to a file, and returns a text with its path.
    pub(super) fn keep(&self, number: u64, seed: u64) -> String {
        let change = self.nth(number);
        let mut bytes = self.images[change.image].clone();
        for (at, new) in &change.bytes {
            bytes[*at..*at + new.len()].copy_from_slice(new);
        }
        bytes.resize(change.length.unwrap_or(bytes.len()), 0);
        let path = env::temp_dir().join(format!("thiscpu-segment-{seed}-{number}"));
        let when = if change.is_late { "changed while attached" } else { "changed before" };
        match fs::write(&path, bytes) {
            Ok(()) => format!("{when}, in {}", path.display()),
            Err(why) => format!("{when}, not kept: {why}"),
        }
    }
}

/// Returns a value that is plausible for some field, or a random one.
fn hostile_word(random: &mut Rng, len: usize) -> u64 {
    let near = |value: u64, random: &mut Rng| value.wrapping_add(random.u64(..5)).wrapping_sub(2);
    let len = len as u64;
    match random.u32(..6) {
        0 => random.u64(..),
        1 => random.u64(..) >> random.u32(..64),
        2 => near(1 << random.u32(..64), random),
        3 => near(random.u64(..len) & !(PAGE as u64 - 1), random),
        4 => random.u64(..len) & !15,
        _ => [0, 1, len, u64::MAX, i64::MAX as u64][random.usize(..5)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_changed() {
        let images = [vec![0; 64 << 10]];
        let changes = Changes::new(&images, 7);
        let mut is_changed = vec![false; images[0].len()];
        for number in 0..8 * (images[0].len() as u64).div_ceil(3) {
            let change = changes.nth(number);
            change.bytes.iter().filter(|(_, new)| new[0] != 0).for_each(|(at, _)| {
                is_changed[*at] = true;
            });
        }
        assert!(is_changed.iter().all(|&it| it));
    }
}
