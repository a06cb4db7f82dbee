//! Rows: one figure each. `--json` prints them as lines, and results.csv has the same columns.

use std::io::{self, BufRead as _, BufReader, Read as _};

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    case::Outcome,
    contenders::Name,
    kind::Kind,
    metric::{
        CACHE_RATIO, GRANT_RATIO, HARDENED_RATIO, MALLOC_RATIO, Metric, RATIO_TO_NONE,
        THISCPU_RATIO, TIME_PER_GRANT,
    },
    stats::{self, Spread},
    workloads::Workload,
};

/// One figure. Its fields are the keys of a line of JSON, and the columns of results.csv.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) workload: Workload,
    /// The name of the case; empty if the workload has only one.
    pub(crate) case: String,
    pub(crate) contender: Name,
    pub(crate) threads: usize,
    pub(crate) metric: String,
    pub(crate) unit: String,
    /// The median over the rounds.
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
    /// Whether the case was interrupted, so that rounds or audited calls are missing.
    #[serde(default)]
    pub(crate) partial: bool,
    /// The value of each round; only results.json has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) values: Vec<f64>,
}

impl Row {
    /// Makes the row of a metric, unless there are no values.
    pub(super) fn new(
        (kind, threads): (Kind, usize),
        contender: Name,
        metric: &Metric,
        values: Vec<f64>,
    ) -> Option<Self> {
        let Spread { median, min, max } = metric.combine(&values)?;
        Some(Self {
            workload: kind.workload(),
            case: kind.case_name().to_owned(),
            contender,
            threads,
            metric: metric.name.to_owned(),
            unit: metric.unit.to_owned(),
            median,
            min,
            max,
            rounds: values.len(),
            partial: false,
            values,
        })
    }

    pub(crate) fn spread(&self) -> Spread {
        Spread { median: self.median, min: self.min, max: self.max }
    }

    /// Returns the kind that it is of, if this version has it.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::find(self.workload, &self.case)
    }

    pub(crate) fn is_of(&self, kind: Kind, threads: usize) -> bool {
        self.kind() == Some(kind) && self.threads == threads
    }

    /// Returns whether two rows are of the same case, contender and metric.
    pub(crate) fn is_same_figure(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.workload, row.contender, row.threads);
        key(self) == key(other) && self.case == other.case && self.metric == other.metric
    }

    /// Returns the row without the values of its rounds, as lines of JSON and CSV have it.
    fn without_values(&self) -> Self {
        Self { values: Vec::new(), ..self.clone() }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(&self.without_values()).expect("text and numbers serialize as JSON")
    }
}

/// The ratios of this project's designs to a contender.
pub(super) const RATIOS: [(&Metric, Name); 3] = [
    (&THISCPU_RATIO, Name::ThisCpu),
    (&CACHE_RATIO, Name::ThisCpuCache),
    (&MALLOC_RATIO, Name::ThisCpuMalloc),
];

/// Returns all figures of an outcome, contender by contender.
pub(crate) fn rows(outcome: &Outcome) -> Vec<Row> {
    let mut rows = Vec::new();
    let case = (outcome.kind, outcome.threads);
    for &contender in &outcome.contenders {
        let own = outcome.series.iter().filter(|((name, _), _)| *name == contender);
        rows.extend(
            own.filter_map(|((_, metric), values)| {
                Row::new(case, contender, metric, values.clone())
            }),
        );
        if contender == Name::Nothing {
            continue;
        }
        let mut ratios = vec![(&RATIO_TO_NONE, contender, Name::Nothing)];
        ratios.splice(..0, RATIOS.map(|(metric, ours)| (metric, ours, contender)));
        if contender == Name::ThisCpuMalloc {
            ratios.push((&HARDENED_RATIO, Name::ThisCpuHardened, contender));
        }
        let compared = outcome.kind.compared();
        rows.extend(ratios.into_iter().filter_map(|(metric, numerator, denominator)| {
            Row::new(case, contender, metric, ratios_of(outcome, compared, numerator, denominator)?)
        }));
        rows.extend(
            ratios_of(outcome, &TIME_PER_GRANT, Name::ThisCpu, contender)
                .and_then(|ratios| Row::new(case, contender, &GRANT_RATIO, ratios)),
        );
    }
    rows.iter_mut().for_each(|row| row.partial = !outcome.is_complete);
    rows
}

/// Returns the ratio of two contenders in each round, by a metric that both have.
fn ratios_of(
    outcome: &Outcome,
    metric: &'static Metric,
    numerator: Name,
    denominator: Name,
) -> Option<Vec<f64>> {
    let values = |name| outcome.series.get(&(name, metric));
    let ratios = || Some(stats::paired_ratios(values(numerator)?, values(denominator)?));
    (numerator != denominator).then(ratios)?
}

const COLUMNS: &str = "workload,case,contender,threads,metric,unit,median,min,max,rounds,partial";

/// Files of earlier versions lack the last column.
const MARK: &str = ",partial";

/// Longer files are not results: all cases together have a tenth.
const BYTES_MAX: u64 = 8 << 20;

/// Writes rows as CSV, after a line with the names of the columns.
pub(crate) fn to_csv(rows: &[Row]) -> Result<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(COLUMNS.split(','))?;
    rows.iter().try_for_each(|row| writer.serialize(row.without_values()))?;
    Ok(writer.into_inner()?)
}

/// Returns whether a file begins with the names of the columns.
pub(crate) fn is_csv(file: impl io::Read) -> bool {
    let mut line = String::new();
    let read = BufReader::new(file.take(COLUMNS.len() as u64 + 2)).read_line(&mut line);
    let columns = line.trim_end();
    read.is_ok() && (columns == COLUMNS || COLUMNS.strip_suffix(MARK) == Some(columns))
}

/// Reads such a CSV.
///
/// Also returns how many rows it left out because this version lacks their workload or contender.
/// Anything else that is not as [`to_csv`] writes it is an error.
pub(crate) fn read_csv(file: impl io::Read) -> Result<(Vec<Row>, usize)> {
    let mut bytes = Vec::new();
    file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    ensure!(bytes.len() as u64 <= BYTES_MAX, "it has more than {BYTES_MAX} bytes");
    ensure!(is_csv(&*bytes), "it is not a results.csv of this version");
    ensure!(bytes.ends_with(b"\n"), "its last line is cut off");
    let mut reader = csv::Reader::from_reader(&*bytes);
    let columns = reader.headers()?.clone();
    let (mut rows, mut unknown): (Vec<Row>, usize) = Default::default();
    for record in reader.records() {
        let record = record?;
        let line = record.position().map_or(0, csv::Position::line);
        if !is_known::<Workload>(&record[0]) || !is_known::<Name>(&record[2]) {
            unknown += 1;
            continue;
        }
        let row: Row =
            record.deserialize(Some(&columns)).with_context(|| format!("line {line}"))?;
        let Spread { median, min, max } = row.spread();
        let is_finite = [median, min, max].iter().all(|value| value.is_finite());
        let is_ordered = min <= median && median <= max && row.rounds > 0;
        let is_positive = min > 0.0 || row.unit != "ratio";
        ensure!(is_finite && is_ordered && is_positive, "line {line} has impossible figures");
        rows.push(row);
    }
    Ok((rows, unknown))
}

/// Returns whether a name in a file, which may be hidden on the command line, is one of `T`.
fn is_known<T: DeserializeOwned>(name: &str) -> bool {
    serde_json::from_value::<T>(name.into()).is_ok()
}

#[cfg(test)]
mod tests {
    use indexmap::IndexMap;

    use super::*;
    use crate::metric::{TIME_PER_OP, WRONG_SUMS};

    fn outcome() -> Outcome {
        Outcome {
            kind: Kind::Syscalls,
            threads: 2,
            contenders: vec![Name::Nothing, Name::Atomic, Name::ThisCpu],
            is_complete: true,
            series: IndexMap::from([
                ((Name::Nothing, &TIME_PER_OP), vec![10.0, 20.0, 40.0]),
                ((Name::Atomic, &TIME_PER_OP), vec![40.0, 80.0, 160.0]),
                ((Name::ThisCpu, &TIME_PER_OP), vec![20.0, 40.0, 80.0]),
                ((Name::ThisCpu, &WRONG_SUMS), vec![1.0, 0.0, 2.0]),
            ]),
            deviations: IndexMap::new(),
        }
    }

    fn median(rows: &[Row], contender: Name, metric: &Metric) -> Option<f64> {
        rows.iter()
            .find(|row| row.contender == contender && row.metric == metric.name)
            .map(|row| row.median)
    }

    #[test]
    fn ratios_are_taken_round_by_round_and_never_to_oneself() {
        let rows = rows(&outcome());
        assert_eq!(median(&rows, Name::Atomic, &THISCPU_RATIO), Some(0.5));
        assert_eq!(median(&rows, Name::Atomic, &RATIO_TO_NONE), Some(4.0));
        assert_eq!(median(&rows, Name::ThisCpu, &RATIO_TO_NONE), Some(2.0));
        assert_eq!(median(&rows, Name::ThisCpu, &THISCPU_RATIO), None);
        assert_eq!(median(&rows, Name::Nothing, &THISCPU_RATIO), None);
        assert_eq!(median(&rows, Name::Nothing, &RATIO_TO_NONE), None);
        assert_eq!(median(&rows, Name::ThisCpu, &WRONG_SUMS), Some(3.0));
    }

    #[test]
    fn json_line_has_exactly_the_documented_keys() {
        let line = rows(&outcome())[0].to_json();
        let expected = concat!(
            r#"{"workload":"commit","case":"syscalls","contender":"none","threads":2,"#,
            r#""metric":"time_per_op","unit":"ns","median":20.0,"min":10.0,"max":40.0,"rounds":3,"#,
            r#""partial":false}"#,
        );
        assert_eq!(line, expected);
    }

    #[test]
    fn csv_reads_back_without_unknown_rows() {
        let mut partial = outcome();
        partial.is_complete = false;
        let written = rows(&partial);
        let mut csv = to_csv(&written).unwrap();
        csv.extend(b"add,,retired-design,2,time_per_op,ns,1,1,1,3,false\n");
        let (read, unknown) = read_csv(&*csv).unwrap();
        assert_eq!(read, written.iter().map(Row::without_values).collect::<Vec<_>>());
        assert!(unknown == 1 && read.iter().all(|row| row.partial));
    }

    #[test]
    fn broken_csv_is_refused_with_the_reason() {
        let read = |rows: &str| read_csv(format!("{COLUMNS}\n{rows}").as_bytes());
        let row = |figures: &str| format!("add,,atomic,1,thiscpu_ratio,ratio,{figures},false\n");
        assert_eq!(read(&row("1,1,1,3")).unwrap().0.len(), 1);
        let whole = row("1,1,1,3");
        let error = |read: Result<(Vec<Row>, usize)>| format!("{:#}", read.unwrap_err());
        assert_eq!(error(read(whole.trim_end())), "its last line is cut off");
        for figures in
            ["NaN,1,1,3", "0,0,0,3", "-1,-1,-1,3", "1,1,inf,3", "1,2,3,3", "3,1,2,3", "1,1,1,0"]
        {
            assert_eq!(error(read(&row(figures))), "line 2 has impossible figures", "{figures}");
        }
        for broken in [whole.replace("1,1,1,", "1,x,1,"), whole.replace("1,1,1,", "1,1,")] {
            assert!(error(read(&(whole.clone() + &broken))).contains("line"), "{broken}");
        }
        assert!(error(read_csv(&b"name,value\nx,1\n"[..])).contains("not a results.csv"));
        assert!(error(read_csv(io::repeat(0))).contains("more than 8388608 bytes"));
    }

    #[test]
    fn csv_of_earlier_versions_is_read() {
        let columns = COLUMNS.strip_suffix(MARK).unwrap();
        let csv = format!("{columns}\nadd,,none,1,time_per_op,ns,1,1,1,3\n");
        assert!(!read_csv(csv.as_bytes()).unwrap().0[0].partial);
    }
}
