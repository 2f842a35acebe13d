//! What was measured, as one table with the aims beside the figures.

use std::time::Duration;

/// One processor, and a gigabyte.
const CORES_MAX: f64 = 1.0;
const MEMORY_MAX: f64 = 1000.0;
const DECIDED_WITHIN: Duration = Duration::from_secs(5);

pub struct Outcome {
    pub nodes: u32,
    pub replicas: u32,
    pub seconds: u64,
    pub joined_in: Duration,
    pub loaded_in: Duration,
    /// Processors that the controller took, on the average and in its busiest second.
    pub cores: f64,
    pub cores_most: f64,
    /// Its largest resident memory meanwhile, and since its start.
    pub memory_bytes: u64,
    pub memory_bytes_most: u64,
    /// Frames of all nodes, in both directions.
    pub frames_a_second: f64,
    /// From the end of a node's connection, and of its last sign, until the controller had decided that it is lost; `None`:
    /// it had not within the patience of the bench.
    pub closed: Option<Duration>,
    pub silent: Option<Duration>,
    /// Connections that ended though the bench did not end them.
    pub lost: u32,
}

/// A line of the table. Without an aim it is there for people.
struct Line {
    what: String,
    aim: &'static str,
    figure: String,
    is_met: bool,
}

impl Outcome {
    fn lines(&self) -> Vec<Line> {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let decided = |after: Option<Duration>| match after {
            Some(after) => format!("{:.2} s", after.as_secs_f64()),
            None => "never".to_owned(),
        };
        let in_time = |after: Option<Duration>| after.is_some_and(|it| it <= DECIDED_WITHIN);
        let aimed = |what: &str, aim: &'static str, figure: String, is_met: bool| Line {
            what: what.to_owned(),
            aim,
            figure,
            is_met,
        };
        let plain = |what: String, figure: String| Line {
            what,
            aim: "",
            figure,
            is_met: true,
        };
        let seconds = self.seconds;
        vec![
            aimed(
                &format!("processor time of the controller, mean of {seconds} s"),
                "1 core",
                format!("{:.2} cores", self.cores),
                self.cores <= CORES_MAX,
            ),
            plain(
                "the same in its busiest second".to_owned(),
                format!("{:.2} cores", self.cores_most),
            ),
            aimed(
                "its resident memory, at most",
                "1,000 MB",
                format!("{:.0} MB", megabytes(self.memory_bytes)),
                megabytes(self.memory_bytes) <= MEMORY_MAX,
            ),
            plain(
                "the same since its start".to_owned(),
                format!("{:.0} MB", megabytes(self.memory_bytes_most)),
            ),
            aimed(
                "a node's connection is closed: decided after",
                "5 s",
                decided(self.closed),
                in_time(self.closed),
            ),
            aimed(
                "a node falls silent: decided after",
                "5 s",
                decided(self.silent),
                in_time(self.silent),
            ),
            aimed(
                "connections lost meanwhile",
                "0",
                self.lost.to_string(),
                self.lost == 0,
            ),
            plain(
                "frames of all nodes, both ways".to_owned(),
                format!("{:.0} a second", self.frames_a_second),
            ),
            plain(
                format!("{} nodes joined in", self.nodes),
                format!("{:.1} s", self.joined_in.as_secs_f64()),
            ),
            plain(
                format!("{} replicas were loaded in", self.replicas),
                format!("{:.1} s", self.loaded_in.as_secs_f64()),
            ),
        ]
    }

    /// In Markdown.
    pub fn table(&self) -> String {
        let mut table = format!(
            "| {} nodes, {} replicas | aim | measured |\n|---|---:|---:|\n",
            self.nodes, self.replicas
        );
        for line in self.lines() {
            let Line {
                what, aim, figure, ..
            } = line;
            table += &format!("| {what} | {aim} | {figure} |\n");
        }
        table
    }

    /// The lines whose aim is missed.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.lines().into_iter().filter(|it| !it.is_met);
        missed.map(|it| it.what).collect()
    }
}
