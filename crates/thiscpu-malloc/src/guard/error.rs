//! What a program can do wrong with a block, in words.

use core::fmt;

use super::slot::{Block, State};

/// Something that was done wrong.
#[derive(Debug)]
pub(super) struct Error {
    /// What was accessed or freed.
    pub(super) address: usize,
    pub(super) kind: Kind,
    /// The block that it was done to, if one can be named.
    pub(super) block: Option<Block>,
    /// Whether the block was looked at while somebody may have changed it.
    pub(super) is_torn: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// An access to what is not accessible.
    Access { is_write: Option<bool> },
    /// A free of what was freed before.
    DoubleFree,
    /// A free of an address within a block's page, but for its start.
    FreeOfInside,
    /// A free of what no block was ever at.
    FreeOfNone,
    /// A free of a block beside which somebody has written, nearest to it at this address.
    Damage { at: usize },
}

/// `1 byte`, `2 bytes`.
struct Count(usize);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// Where an address is, as seen from a block.
struct Seen(usize, Block);

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen(address, block) = *self;
        let end = block.start + block.size;
        match () {
            () if address < block.start => {
                write!(f, "{} before the start of", Count(block.start - address))
            }
            // The byte at the end is the first behind it.
            () if address >= end => write!(f, "{} behind the end of", Count(address - end + 1)),
            () => write!(f, "byte {} of", address - block.start),
        }?;
        write!(f, " the {} at {:#x}", Sized(block), block.start)
    }
}

struct Sized(Block);

impl fmt::Display for Sized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let freed = if self.0.state == State::Freed { "freed " } else { "" };
        write!(f, "{freed}block of {}", Count(self.0.size))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.address;
        let Some(block) = self.block else {
            return match self.kind {
                Kind::Access { .. } => write!(f, "wild access to {address:#x}: no block was there"),
                _ => write!(f, "wrong free of {address:#x}: no block was there"),
            };
        };
        let seen = Seen(address, block);
        let end = block.start + block.size;
        match self.kind {
            Kind::Access { is_write } => {
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
                write!(f, "{name}: {access} {address:#x}, {seen}")
            }
            Kind::DoubleFree => write!(f, "double free of {seen}"),
            Kind::FreeOfInside | Kind::FreeOfNone => {
                write!(f, "wrong free of {address:#x}, {seen}")
            }
            Kind::Damage { at } => {
                let name = if at < block.start { "underflow" } else { "overflow" };
                write!(
                    f,
                    "{name}, seen at the free or realloc: somebody has written {}",
                    Seen(at, block)
                )
            }
        }
    }
}
