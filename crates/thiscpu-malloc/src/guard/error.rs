//! What a program can do wrong with a block, in words.

use core::fmt;

use super::slot::{Block, State};

/// Something that was done wrong.
#[derive(Debug)]
pub(super) struct Error {
    /// What was accessed or freed.
    pub(super) address: usize,
    pub(super) kind: ErrorKind,
    /// The block that it was done to, if one can be named.
    pub(super) block: Option<Block>,
    /// Whether the block was looked at while somebody may have changed it.
    pub(super) is_torn: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ErrorKind {
    /// An access to what is not accessible.
    Access { is_write: Option<bool> },
    /// A free of what was freed before.
    DoubleFree,
    /// A free of an address within a block's page, but for its start.
    InteriorFree,
    /// A free of what no block was ever at.
    InvalidFree,
    /// A free of a block beside which somebody has written, nearest to it at this address.
    CanaryDamage { at: usize },
}

/// `1 byte`, `2 bytes`.
struct ByteCount(usize);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// Where an address is, as seen from a block.
struct Location(usize, Block);

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location(address, block) = *self;
        let end = block.start + block.size;
        match () {
            () if address < block.start => {
                write!(f, "{} before the start of", ByteCount(block.start - address))
            }
            // The byte at the end is the first behind it.
            () if address >= end => write!(f, "{} behind the end of", ByteCount(address - end + 1)),
            () => write!(f, "byte {} of", address - block.start),
        }?;
        write!(f, " the {} at {:#x}", SizedBlock(block), block.start)
    }
}

struct SizedBlock(Block);

impl fmt::Display for SizedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let freed = if self.0.state == State::Freed { "freed " } else { "" };
        write!(f, "{freed}block of {}", ByteCount(self.0.size))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        let Some(block) = self.block else {
            return match self.kind {
                ErrorKind::Access { .. } => {
                    write!(f, "wild access to {address:#x}: no block was there")
                }
                _ => write!(f, "wrong free of {address:#x}: no block was there"),
            };
        };
        let location = Location(address, block);
        let end = block.start + block.size;
        match self.kind {
            ErrorKind::Access { is_write } => {
                let access = match is_write {
                    Some(true) => "a write to",
                    Some(false) => "a read of",
                    None => "an access to",
                };
                let name = match block.state {
                    State::Freed => "use after free",
                    _ if address >= end => "overflow",
                    _ if address < block.start => "underflow",
                    _ => "use after free (of a block whose place another has taken since)",
                };
                write!(f, "{name}: {access} {address:#x}, {location}")
            }
            ErrorKind::DoubleFree => write!(f, "double free of {location}"),
            ErrorKind::InteriorFree | ErrorKind::InvalidFree => {
                write!(f, "wrong free of {address:#x}, {location}")
            }
            ErrorKind::CanaryDamage { at } => {
                let name = if at < block.start { "underflow" } else { "overflow" };
                write!(
                    f,
                    "{name}, seen at the free or realloc: somebody has written {}",
                    Location(at, block)
                )
            }
        }
    }
}
