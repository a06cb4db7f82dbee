//! The errors that guarded blocks detect, and how reports describe them.

use core::fmt;

use super::slot::{Block, State};

/// An error that the program has made.
#[derive(Debug)]
pub(super) struct Error {
    /// The address that was accessed or freed.
    pub(super) address: usize,
    pub(super) kind: ErrorKind,
    /// The block that was accessed or freed, if it is known.
    pub(super) block: Option<Block>,
    /// Whether the pool may have changed while `block` was read.
    pub(super) is_torn: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ErrorKind {
    /// An access to an inaccessible page of the pool.
    Access { is_write: Option<bool> },
    /// A free of a block that was freed before.
    DoubleFree,
    /// A free of an address on a block's page at which the block does not begin.
    InteriorFree,
    /// A free of an address where no block ever was.
    InvalidFree,
    /// A free or shrink of a block whose canary was overwritten, nearest to it at this address.
    CanaryDamage { at: usize },
}

/// A number of bytes, shown as `1 byte` or `2 bytes`.
struct ByteCount(usize);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// An address, shown relative to a block.
struct Location(usize, Block);

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location(address, block) = *self;
        let end = block.start + block.size;
        match () {
            () if address < block.start => {
                write!(f, "{} before the start of", ByteCount(block.start - address))
            }
            // The byte at `end` is the first one after the block.
            () if address >= end => write!(f, "{} after the end of", ByteCount(address - end + 1)),
            () => write!(f, "byte {} of", address - block.start),
        }?;
        write!(f, " the {} at {:#x}", SizedBlock(block), block.start)
    }
}

/// A block, shown by its state and size.
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
                _ => write!(f, "invalid free of {address:#x}: no block was there"),
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
                    _ => "use after free (of a block whose slot another one has taken since)",
                };
                write!(f, "{name}: {access} {address:#x}, {location}")
            }
            ErrorKind::DoubleFree => write!(f, "double free of {location}"),
            ErrorKind::InteriorFree | ErrorKind::InvalidFree => {
                write!(f, "invalid free of {address:#x}, {location}")
            }
            ErrorKind::CanaryDamage { at } => {
                let name = if at < block.start { "underflow" } else { "overflow" };
                write!(f, "{name}, found at free or realloc: a write {}", Location(at, block))
            }
        }
    }
}
