//! Clients in ServeGen's format: a folder, or a `.tar.xz` of one, with a file per client that has a line for each ten minutes:
//! `start, requests per second, coefficient of variation, shape, p1, p2`. Each client stands for a model.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::error::WorkloadError;
use super::renewal::{Renewal, Shape, Window};

const WINDOW_SECONDS: f64 = 600.0;
/// The size limit of a client's file; ten years of windows are smaller.
const FILE_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct ServeGen {
    /// By the client's name.
    pub clients: Vec<(String, Vec<Window>)>,
}

impl ServeGen {
    /// Reads every `…-trace.csv` below `path`; inside an archive only those below `within`.
    pub fn open(path: &Path, within: Option<&str>) -> Result<ServeGen, WorkloadError> {
        let mut clients = if path.is_dir() {
            from_folder(path)?
        } else {
            from_archive(path, within)?
        };
        clients.sort_by_key(|(name, _)| natural(name));
        if clients.is_empty() {
            return Err(WorkloadError::File {
                path: path.to_owned(),
                problem: "holds no file that ends in `-trace.csv`".to_owned(),
            });
        }
        Ok(ServeGen { clients })
    }

    /// The expected number of requests of all clients.
    pub fn expected(&self) -> f64 {
        let windows = self.clients.iter().flat_map(|(_, windows)| windows);
        windows
            .map(|window| window.per_second * (window.to_seconds - window.from_seconds))
            .sum()
    }

    /// (milliseconds, client, duration of the request) in the order of time, thinned by `scale`.
    pub fn requests(&self, scale: f64, seed: u64) -> Merged {
        let thinned = |windows: &[Window]| {
            let thin = |window: &Window| Window {
                per_second: window.per_second * scale,
                ..*window
            };
            windows.iter().map(thin).collect()
        };
        let renewals = self.clients.iter().enumerate().map(|(nth, (_, windows))| {
            let own = seed.wrapping_mul(1_000_003).wrapping_add(nth as u64);
            Renewal::new(thinned(windows), Pcg64Mcg::seed_from_u64(own))
        });
        let mut merged = Merged {
            clients: renewals.collect(),
            next: BinaryHeap::new(),
            lengths: Pcg64Mcg::seed_from_u64(seed ^ 0x5E5E),
        };
        for nth in 0..merged.clients.len() {
            merged.draw(nth);
        }
        merged
    }
}

/// All clients' requests in the order of time, with the next request of each in memory.
#[derive(Debug)]
pub struct Merged {
    clients: Vec<Renewal>,
    next: BinaryHeap<Reverse<(u64, usize)>>,
    lengths: Pcg64Mcg,
}

impl Merged {
    fn draw(&mut self, client: usize) {
        if let Some(seconds) = self.clients[client].next() {
            self.next.push(Reverse(((seconds * 1000.0) as u64, client)));
        }
    }
}

impl Iterator for Merged {
    type Item = (u64, usize, u64);

    fn next(&mut self) -> Option<Self::Item> {
        let Reverse((at_ms, client)) = self.next.pop()?;
        self.draw(client);
        let drawn: f64 = self.lengths.sample(rand_distr::Exp1);
        Some((at_ms, client, 1 + (drawn * 4_000.0) as u64))
    }
}

fn from_folder(path: &Path) -> Result<Vec<(String, Vec<Window>)>, WorkloadError> {
    let read = |source| WorkloadError::Read {
        path: path.to_owned(),
        source,
    };
    let mut clients = Vec::new();
    for entry in std::fs::read_dir(path).map_err(read)? {
        let file = entry.map_err(read)?.path();
        let Some(name) = client_name(&file) else {
            continue;
        };
        let mut text = String::new();
        File::open(&file)
            .and_then(|opened| opened.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|source| WorkloadError::Read {
                path: file.clone(),
                source,
            })?;
        clients.push((name, windows(&file, &text)?));
    }
    Ok(clients)
}

fn from_archive(
    path: &Path,
    within: Option<&str>,
) -> Result<Vec<(String, Vec<Window>)>, WorkloadError> {
    let read = |source| WorkloadError::Read {
        path: path.to_owned(),
        source,
    };
    let mut packed = BufReader::new(File::open(path).map_err(read)?);
    let mut plain = Vec::new();
    lzma_rs::xz_decompress(&mut packed, &mut plain).map_err(|error| WorkloadError::File {
        path: path.to_owned(),
        problem: format!("is not an xz archive: {error:?}"),
    })?;
    let mut clients = Vec::new();
    let mut archive = tar::Archive::new(plain.as_slice());
    for entry in archive.entries().map_err(read)? {
        let mut entry = entry.map_err(read)?;
        let file = entry.path().map_err(read)?.into_owned();
        let inside = within.is_none_or(|part| file.to_string_lossy().contains(part));
        let Some(name) = client_name(&file).filter(|_| inside) else {
            continue;
        };
        let mut text = String::new();
        (&mut entry)
            .take(FILE_BYTES_MAX)
            .read_to_string(&mut text)
            .map_err(read)?;
        clients.push((name, windows(&path.join(file), &text)?));
    }
    Ok(clients)
}

fn client_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    name.strip_suffix("-trace.csv").map(str::to_owned)
}

/// A sort key that puts `chunk-2` before `chunk-10`.
fn natural(name: &str) -> (String, u64) {
    let digits = name.trim_start_matches(|character: char| !character.is_ascii_digit());
    let head = &name[..name.len() - digits.len()];
    (head.to_owned(), digits.parse().unwrap_or(u64::MAX))
}

fn windows(path: &Path, text: &str) -> Result<Vec<Window>, WorkloadError> {
    let mut windows: Vec<Window> = Vec::new();
    for (nth, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let fault = |problem: String| WorkloadError::Line {
            path: path.to_owned(),
            line: nth as u64 + 1,
            problem,
        };
        let columns: Vec<&str> = line.split(',').map(str::trim).collect();
        if columns.len() < 5 {
            return Err(fault(format!(
                "has {} columns; expected: start, rate, variation, shape, p1, p2",
                columns.len()
            )));
        }
        let number = |at: usize, what: &str| match columns[at].parse::<f64>() {
            Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
            _ => Err(fault(format!(
                "{what} `{}` is negative or not a number",
                columns[at]
            ))),
        };
        let from_seconds = number(0, "the start")?;
        let per_second = number(1, "the rate")?;
        let variation = number(2, "the variation")?;
        let shape = match columns[3] {
            "Gamma" if variation > 0.0 => Shape::Gamma { variation },
            "Weibull" => Shape::Weibull {
                shape: number(4, "the shape")?.max(0.05),
            },
            _ => Shape::Exponential,
        };
        if windows
            .last()
            .is_some_and(|last| from_seconds < last.to_seconds)
        {
            return Err(fault(format!(
                "starts at {from_seconds} s, inside the window before"
            )));
        }
        windows.push(Window {
            from_seconds,
            to_seconds: from_seconds + WINDOW_SECONDS,
            per_second,
            shape,
        });
    }
    Ok(windows)
}
