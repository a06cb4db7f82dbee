//! The walk: one table of all cells, geometric means of groups of cells, and the worst cells.

use indexmap::IndexMap;
use indicatif::HumanCount;

use super::{Grid, Row, table::with_unit};
use crate::{
    contenders::{Name, allocators::OTHER_ALLOCATORS},
    kind::Kind,
    metric::{Metric, PEAK_BYTES, TIME_PER_OP},
    stats,
    workloads::walk::Cell,
};

/// A cell is slow if its time is more than this many times that of the fastest peer.
const SLOW: f64 = 1.25;

/// A cell is large if its peak of memory is more than this many times the smallest peer's.
const LARGE: f64 = 1.3;

/// Peaks are compared where the smallest peer's is above this.
///
/// Below, an allocator's own tables and caches decide.
const COMPARED_MIN_BYTES: f64 = (8 << 20) as f64;

/// Makes the tables of a walk; none if `rows` has no cell of it.
///
/// If a walk was made several times, the rows of each follow those of the one before.
pub(crate) fn walk(rows: &[Row]) -> Vec<Grid> {
    let mut by_cell = IndexMap::<(Cell, usize), Vec<&Row>>::new();
    for row in rows {
        if let Some(Kind::Walk(cell)) = row.kind() {
            by_cell.entry((cell, row.threads)).or_default().push(row);
        }
    }
    let compared = by_cell.into_iter().map(|((cell, threads), rows)| Compared {
        cell,
        threads,
        // The least of the rounds, because a disturbance can only raise the time of a block.
        time: Pair::of(&rows, &TIME_PER_OP, |row| row.min, 0.0, SLOW),
        peak: Pair::of(&rows, &PEAK_BYTES, |row| row.median, COMPARED_MIN_BYTES, LARGE),
    });
    let cells: Vec<Compared> = compared.collect();
    if cells.is_empty() {
        return Vec::new();
    }
    vec![all(&cells), means(&cells), worst(&cells)]
}

/// A cell with thiscpu-malloc's figures and those of its best peers.
struct Compared {
    cell: Cell,
    threads: usize,
    time: Option<Pair>,
    /// None also where all peaks are too small to be compared.
    peak: Option<Pair>,
}

/// thiscpu-malloc beside the best of the other allocators, in the run with the median ratio.
struct Pair {
    metric: &'static Metric,
    peer: Name,
    ours: f64,
    theirs: f64,
    /// `ours / theirs`.
    ratio: f64,
    /// Whether the ratio is above the bar in more than half of the runs.
    is_above: bool,
}

impl Pair {
    /// Compares figures of one cell, in those runs whose best peer is at least `min`.
    ///
    /// `value` returns the figure that stands for all rounds of a run.
    fn of(
        rows: &[&Row],
        metric: &'static Metric,
        value: fn(&Row) -> f64,
        min: f64,
        bar: f64,
    ) -> Option<Self> {
        // One value for each run.
        let values = |name: Name| -> Vec<f64> {
            let is_own = |row: &&&Row| row.contender == name && row.metric == metric.name;
            rows.iter().filter(is_own).map(|row| value(row)).collect()
        };
        let peers = OTHER_ALLOCATORS.map(|name| (name, values(name)));
        let in_run = |(run, ours): (usize, f64)| {
            let theirs = peers.iter().filter_map(|(peer, values)| Some((*peer, *values.get(run)?)));
            let (peer, theirs) = theirs.min_by(|one, other| one.1.total_cmp(&other.1))?;
            let ratio = ours / theirs;
            let pair = Self { metric, peer, ours, theirs, ratio, is_above: ratio > bar };
            (theirs >= min).then_some(pair)
        };
        let ours = values(Name::ThisCpuMalloc).into_iter().enumerate();
        let mut runs: Vec<Self> = ours.filter_map(in_run).collect();
        runs.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
        let is_above = 2 * runs.iter().filter(|run| run.is_above).count() > runs.len();
        let middle = runs.len() / 2;
        (middle < runs.len()).then(|| Self { is_above, ..runs.swap_remove(middle) })
    }

    fn peer(&self) -> String {
        self.peer.to_string()
    }

    fn ours(&self) -> String {
        with_unit(self.ours, self.metric.unit)
    }

    fn theirs(&self) -> String {
        with_unit(self.theirs, self.metric.unit)
    }

    /// Returns the ratio, marked if it is above the bar.
    fn ratio(&self) -> String {
        let mark = if self.is_above { " !" } else { "" };
        format!("{}{mark}", with_unit(self.ratio, "ratio"))
    }
}

impl Compared {
    fn names(&self) -> [String; 3] {
        [size(self.cell.size()), self.cell.order().to_string(), self.threads.to_string()]
    }
}

/// Returns a number of bytes in the largest unit that is exact.
fn size(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

fn header<const N: usize>(titles: [&str; N]) -> Vec<String> {
    titles.map(str::to_owned).to_vec()
}

/// Makes the table with a row for each cell.
fn all(cells: &[Compared]) -> Grid {
    let title = format!(
        "walk, all cells: thiscpu-malloc / the best peer, marked by ! above {SLOW} in time and \
         above {LARGE} in peak memory; times are the least of all rounds, peaks are medians, which \
         are compared from {} on",
        size(COMPARED_MIN_BYTES as usize)
    );
    let text = |pair: &Option<Pair>, text: fn(&Pair) -> String| {
        pair.as_ref().map(text).unwrap_or_default()
    };
    let row = |cell: &Compared| {
        let (time, peak) = (&cell.time, &cell.peak);
        let figures = [
            text(time, Pair::peer),
            text(peak, Pair::peer),
            text(time, Pair::ours),
            text(time, Pair::theirs),
            text(time, Pair::ratio),
            text(peak, Pair::ours),
            text(peak, Pair::theirs),
            text(peak, Pair::ratio),
        ];
        cell.names().into_iter().chain(figures).collect()
    };
    let header = header([
        "size",
        "order",
        "threads",
        "fastest peer",
        "smallest peer",
        "time",
        "its time",
        "time / it",
        "peak",
        "its peak",
        "peak / it",
    ]);
    Grid { title, header, rows: cells.iter().map(row).collect(), names: 5 }
}

/// Makes the table of geometric means.
///
/// It has a row for each order, each number of threads, each decade of sizes, and all cells.
fn means(cells: &[Compared]) -> Grid {
    let mut groups = IndexMap::<String, Vec<&Compared>>::new();
    let mut group = |name: &dyn Fn(&Compared) -> String| {
        let mut sorted: Vec<&Compared> = cells.iter().collect();
        sorted.sort_by_key(|cell| (cell.threads, cell.cell.size()));
        for cell in sorted {
            groups.entry(name(cell)).or_default().push(cell);
        }
    };
    group(&|cell| format!("order {}", cell.cell.order()));
    group(&|cell| format!("threads {}", cell.threads));
    group(&|cell| {
        let first = 10_u64.pow(cell.cell.size().ilog10());
        format!("{} to {} bytes", HumanCount(first), HumanCount(10 * first - 1))
    });
    group(&|_| "all".to_owned());
    let row = |(name, cells): (&String, &Vec<&Compared>)| {
        let mut row = vec![name.clone()];
        let figures: [fn(&Compared) -> &Option<Pair>; 2] = [|cell| &cell.time, |cell| &cell.peak];
        for figure in figures {
            let pairs: Vec<&Pair> = cells.iter().filter_map(|cell| figure(cell).as_ref()).collect();
            let ratios: Vec<f64> = pairs.iter().map(|pair| pair.ratio).collect();
            let mean = stats::geometric_mean(&ratios);
            row.push(pairs.len().to_string());
            row.push(mean.map(|mean| with_unit(mean, "ratio")).unwrap_or_default());
            row.push(pairs.iter().filter(|pair| pair.is_above).count().to_string());
        }
        row
    };
    let header = header([
        "cells",
        "timed",
        "time / fastest",
        "slow",
        "compared peaks",
        "peak / smallest",
        "large",
    ]);
    let title = "walk: geometric means, and how many cells are marked".to_owned();
    Grid { title, header, rows: groups.iter().map(row).collect(), names: 1 }
}

/// Makes the table of marked cells, the worst first.
fn worst(cells: &[Compared]) -> Grid {
    let marked = cells.iter().flat_map(|cell| {
        let pairs = [&cell.time, &cell.peak].into_iter().flatten();
        pairs.filter(|pair| pair.is_above).map(move |pair| (cell, pair))
    });
    let mut marked: Vec<(&Compared, &Pair)> = marked.collect();
    marked.sort_by(|(_, one), (_, other)| other.ratio.total_cmp(&one.ratio));
    let row = |(cell, pair): &(&Compared, &Pair)| {
        let figures = [pair.metric.title.to_owned(), pair.peer(), pair.ours(), pair.theirs()];
        let ratio = with_unit(pair.ratio, "ratio");
        cell.names().into_iter().chain(figures).chain([ratio]).collect()
    };
    let header = header([
        "size",
        "order",
        "threads",
        "figure",
        "best peer",
        "thiscpu-malloc",
        "its",
        "ratio",
    ]);
    let title = "walk: the marked cells, the worst first".to_owned();
    Grid { title, header, rows: marked.iter().map(row).collect(), names: 5 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(cell: &str, threads: usize, contender: Name, metric: &Metric, values: [f64; 3]) -> Row {
        let kind = Kind::Walk(Cell::find(cell).unwrap());
        Row::new((kind, threads), contender, metric, values.to_vec()).unwrap()
    }

    /// Returns the rows of a run of one cell: times of two peers and thiscpu-malloc.
    fn run(cell: &str, threads: usize, times: [f64; 3]) -> Vec<Row> {
        [Name::Glibc, Name::Mimalloc, Name::ThisCpuMalloc]
            .into_iter()
            .zip(times)
            .map(|(name, time)| row(cell, threads, name, &TIME_PER_OP, [time; 3]))
            .collect()
    }

    fn cells(grid: &Grid) -> Vec<String> {
        grid.rows.iter().map(|row| row.join("|")).collect()
    }

    #[test]
    fn cells_are_compared_with_the_best_peer_of_each_figure() {
        let mut rows = run("33792-lifo", 8, [20.0, 10.0, 13.0]);
        let peaks = [(Name::Glibc, 10e6), (Name::Mimalloc, 30e6), (Name::ThisCpuMalloc, 12e6)];
        let peak = |(name, bytes)| row("33792-lifo", 8, name, &PEAK_BYTES, [bytes; 3]);
        rows.extend(peaks.map(peak));
        let grids = walk(&rows);
        let cell = "33 KiB|lifo|8|mimalloc|glibc|13.00 ns|10.00 ns|1.300 !|12.00 MB|10.00 MB|1.200";
        assert_eq!(cells(&grids[0]), [cell]);
        let means = cells(&grids[1]);
        let groups = ["order lifo", "threads 8", "10,000 to 99,999 bytes", "all"];
        assert_eq!(means, groups.map(|group| format!("{group}|1|1.300|1|1|1.200|0")));
        let worst = "33 KiB|lifo|8|time per op|mimalloc|13.00 ns|10.00 ns|1.300";
        assert_eq!(cells(&grids[2]), [worst]);
    }

    #[test]
    fn least_time_and_median_peak_count() {
        let cell = |name, metric, values| row("64-peak", 1, name, metric, values);
        let rows = [
            cell(Name::Glibc, &TIME_PER_OP, [10.0, 12.0, 14.0]),
            cell(Name::Mimalloc, &TIME_PER_OP, [13.0, 11.0, 11.0]),
            cell(Name::ThisCpuMalloc, &TIME_PER_OP, [90.0, 9.0, 90.0]),
            cell(Name::Glibc, &PEAK_BYTES, [40e6, 20e6, 9e6]),
            cell(Name::ThisCpuMalloc, &PEAK_BYTES, [10e6, 50e6, 10e6]),
        ];
        let row = "64 B|peak|1|glibc|glibc|9.00 ns|10.00 ns|0.900|10.00 MB|20.00 MB|0.500";
        assert_eq!(cells(&walk(&rows)[0]), [row]);
    }

    #[test]
    fn small_peaks_are_not_compared() {
        let peaks = [(Name::Glibc, 8e6), (Name::ThisCpuMalloc, 80e6)];
        let rows = peaks.map(|(name, bytes)| row("1-peak", 1, name, &PEAK_BYTES, [bytes; 3]));
        let grids = walk(&rows);
        assert_eq!(cells(&grids[0]), ["1 B|peak|1||||||||"]);
        assert!(cells(&grids[1]).contains(&"all|0||0|0||0".to_owned()));
    }

    #[test]
    fn cells_are_marked_if_most_runs_are_above_and_the_worst_is_first() {
        let of = |ours: [f64; 3], cell, threads| {
            ours.map(|ours| run(cell, threads, [10.0, 20.0, ours])).into_iter()
        };
        let (one, two) = (of([13.0, 9.0, 20.0], "8-fifo", 1), of([9.0, 8.0, 30.0], "8-fifo", 2));
        let three = of([40.0, 20.0, 30.0], "4194304-random", 2);
        let rows: Vec<Row> =
            one.zip(two).zip(three).flat_map(|((a, b), c)| [a, b, c]).flatten().collect();
        let grids = walk(&rows);
        let ratios = |grid: &Grid, at: usize| {
            grid.rows.iter().map(|row| row[at].clone()).collect::<Vec<_>>()
        };
        assert_eq!(ratios(&grids[0], 7), ["1.300 !", "0.900", "3.000 !"]);
        assert_eq!(ratios(&grids[2], 7), ["3.000", "1.300"]);
        let all = cells(&grids[1]).pop().unwrap();
        assert_eq!(all, format!("all|3|{:.3}|2|0||0", (1.3_f64 * 0.9 * 3.0).cbrt()));
    }

    #[test]
    fn other_workloads_have_no_table_of_the_walk() {
        assert_eq!(walk(&[]), []);
    }
}
