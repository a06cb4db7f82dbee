//! The cells: sizes, orders of frees, and how many blocks are live at once.

use crate::{
    contenders::allocators,
    named::named_enum,
    workloads::{Info, Threads, Workload},
};

named_enum! {
    /// The order in which blocks are freed.
    enum Order, "order" {
        Lifo "lifo" "Blocks allocated, then freed from the last to the first",
        Fifo "fifo" "Blocks allocated, then freed from the first to the last",
        Random "random" "Blocks allocated, then freed in random order",
        Remote "remote" "Blocks allocated, then passed to the next thread, which frees them",
        Peak "peak" "All threads' blocks, of 32 MiB in all, are freed and allocated again",
    }
}

/// A size and an order of frees, with all numbers of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cell {
    name: &'static str,
    size: usize,
    order: Order,
}

/// Lists the cells of all orders for each size in bytes.
macro_rules! cells {
    ($($size:literal)*) => {
        [$(
            Cell { name: concat!($size, "-lifo"), size: $size, order: Order::Lifo },
            Cell { name: concat!($size, "-fifo"), size: $size, order: Order::Fifo },
            Cell { name: concat!($size, "-random"), size: $size, order: Order::Random },
            Cell { name: concat!($size, "-remote"), size: $size, order: Order::Remote },
            Cell { name: concat!($size, "-peak"), size: $size, order: Order::Peak },
        )*]
    };
}

const MIB: usize = 1 << 20;

impl Cell {
    /// Powers of two, and sizes between them, from 1 byte to 64 MiB.
    pub(crate) const ALL: [Self; 100] = cells! {
        1 8 16 64 200 1024 4096 9000 20000 32768 33792 65536 100000 262144 600000 1048576 2500000
        4194304 16777216 67108864
    };

    pub(crate) fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cell| cell.name == name)
    }

    /// Returns the size and the order in one word.
    pub(crate) const fn name(self) -> &'static str {
        self.name
    }

    /// Returns the size of a block in bytes.
    pub(crate) const fn size(self) -> usize {
        self.size
    }

    pub(crate) const fn order(self) -> Order {
        self.order
    }

    pub(crate) const fn info(self) -> Info {
        let threads: &[usize] = match self.order {
            // One thread alone has no other thread.
            Order::Remote => &[2, 8, 64],
            _ => &[1, 2, 8, 64],
        };
        Info {
            workload: Workload::Walk,
            name: self.name,
            threads: Threads::Default(threads),
            contenders: allocators::OF_ANY_SIZE,
            what: self.order.what(),
        }
    }

    /// Returns whether the cell is part of a quick run.
    pub(crate) fn is_quick(self) -> bool {
        [16, 262_144].contains(&self.size)
    }

    /// Returns the number of blocks that a thread allocates before it frees the first of them.
    ///
    /// It is enough for an order, and for `peak`'s 32 MiB. Large blocks are limited in all threads
    /// together, because some machines refuse to promise more memory than they have.
    pub(super) fn blocks(self, threads: usize) -> usize {
        let wanted = match self.order {
            Order::Peak => (32 * MIB / self.size).min(MIB) / threads,
            _ => (MIB / self.size).min(1_000),
        };
        let promised = 4096 * MIB / self.size / threads;
        wanted.max(4).min(promised.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_size_and_order() {
        for cell in Cell::ALL {
            assert_eq!(cell.name(), format!("{}-{}", cell.size(), cell.order()));
            assert_eq!(Cell::find(cell.name()), Some(cell));
        }
    }

    #[test]
    fn blocks_suffice_for_an_order_and_do_not_exceed_memory() {
        let blocks = |name: &str, threads| Cell::find(name).unwrap().blocks(threads);
        assert_eq!(blocks("1-lifo", 64), 1_000);
        assert_eq!(blocks("65536-fifo", 64), 16);
        assert_eq!(blocks("4194304-random", 64), 4);
        assert_eq!(blocks("67108864-remote", 64), 1);
        assert_eq!(blocks("1-peak", 1), 1 << 20);
        assert_eq!(blocks("64-peak", 64), (32 << 20) / 64 / 64);
        assert_eq!(blocks("67108864-peak", 1), 4);
        assert_eq!(blocks("1-peak", 4096), 256);
    }
}
