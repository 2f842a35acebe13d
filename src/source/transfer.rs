//! Downloads one file: locks it, resumes it, retries while it makes progress, verifies and renames it. A file with its final name
//! is complete; unfinished files end in `.incomplete`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use sha1::Digest as _;

use super::Sources;
use super::cache::Layout;
use super::disk::free_on;
use super::error::SourceError;
use super::listing::Origins;
use super::lock::{Lock, lock};
use super::part::{Check, Part, PartProblem};
use super::part_writer::{PartWriter, VerifyResult, hex};
use super::progress::Progress;

/// Size limits for a list of digests, and for the sample file that reveals the meaning of the tags.
const SUMS_MAX: u64 = 16 << 20;
const SAMPLE_MAX: u64 = 1 << 20;
/// Maximum consecutive attempts without a byte.
const TRIES_MAX: u32 = 6;
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Downloads one file to `path`, unless it exists. Dropping the future keeps the partial file.
pub(super) async fn bring(
    part: &Part,
    path: &Path,
    lock_path: &Path,
    origins: &Origins,
    sources: &Sources,
    progress: &Arc<Progress>,
) -> Result<(), SourceError> {
    let incomplete = incomplete(path);
    let mut seen = part.counted;
    if is_there(path, part).await {
        progress.found(part.size.saturating_sub(seen));
        return Ok(());
    }
    // While another fetch or program downloads the file, show its growing size as progress.
    let held = lock(lock_path, || {
        let now = length_of(&incomplete).min(part.size);
        progress.found(now.saturating_sub(seen));
        seen = seen.max(now);
    });
    let held = held.await.map_err(SourceError::disk(lock_path))?;
    if is_there(path, part).await {
        progress.found(part.size.saturating_sub(seen));
        return Ok(());
    }
    let _turn = sources.files.acquire().await.expect("it is never closed");
    let mut writing = open(&incomplete, part, held).await?;
    // Corrects the progress from the expected length to the actual one.
    progress.loses(seen.saturating_sub(writing.length));
    progress.found(writing.length.saturating_sub(seen));
    let mut mismatched = false;
    loop {
        writing = complete(part, writing, origins, sources, progress).await?;
        let length = writing.length;
        let to = path.to_owned();
        let wanted = part.clone();
        let finished = blocking(move || writing.finish(&wanted, &to)).await;
        match (finished.map_err(SourceError::disk(path))?, origins.peer()) {
            (VerifyResult::Right, _) => return Ok(()),
            // A peer's copy does not improve on a second attempt, and there are other sources.
            (VerifyResult::Wrong { expected, got, .. }, Some(peer)) => {
                progress.loses(length);
                return Err(peer.error(format!(
                    "its copy of {} is damaged (expected {expected}, got {got}) and was not kept",
                    part.path
                )));
            }
            (VerifyResult::Wrong { expected, got, .. }, None) if mismatched => {
                return Err(SourceError::Mismatch {
                    file: origins.describe(part),
                    expected,
                    got,
                });
            }
            (
                VerifyResult::Wrong {
                    expected,
                    got,
                    lock,
                },
                None,
            ) => {
                let file = origins.describe(part);
                tracing::warn!(
                    file,
                    expected,
                    got,
                    "a downloaded file is damaged and is fetched again"
                );
                mismatched = true;
                progress.loses(length);
                writing = open(&incomplete, part, lock).await?;
            }
        }
    }
}

/// Repeats until the file has its expected length.
async fn complete(
    part: &Part,
    mut writing: PartWriter,
    origins: &Origins,
    sources: &Sources,
    progress: &Arc<Progress>,
) -> Result<PartWriter, SourceError> {
    let mut tries = 0;
    let mut pause = sources.settings.pause;
    while writing.length < part.size {
        let before = writing.length;
        let (back, broken) = once(part, writing, origins, progress).await?;
        writing = back;
        let Some((why, after)) = broken else {
            break;
        };
        if writing.length > before {
            (tries, pause) = (0, sources.settings.pause);
        }
        tries += 1;
        if tries >= TRIES_MAX {
            return Err(SourceError::BrokenOff {
                file: origins.describe(part),
                tries,
                why,
            });
        }
        let wait = after.unwrap_or(pause).min(PAUSE_MAX);
        tracing::debug!(file = part.path, why, ?wait, "a download resumes");
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Ok(writing)
}

type Broken = Option<(String, Option<Duration>)>;

/// Uses one connection until it ends or is interrupted.
async fn once(
    part: &Part,
    mut writing: PartWriter,
    origins: &Origins,
    progress: &Arc<Progress>,
) -> Result<(PartWriter, Broken), SourceError> {
    let opened = match origins.open(part, writing.length).await {
        Ok(opened) => opened,
        Err(PartProblem::Lasting(error)) => return Err(error),
        Err(PartProblem::Passing { why, after }) => return Ok((writing, Some((why, after)))),
    };
    if opened.offset != writing.length {
        progress.loses(writing.length);
        let again = part.clone();
        let restarted = blocking(move || writing.restart(&again).map(|()| writing)).await;
        writing = restarted.map_err(SourceError::disk(&part.path))?;
    }
    let mut left = part.size - writing.length;
    let place = writing.path.clone();
    let (chunks, written) = writing.begin(Arc::clone(progress));
    let mut body = opened.body;
    let mut broken = None;
    while let Some(chunk) = body.next().await {
        match chunk {
            // The body exceeds the announced length; stop reading.
            Ok(chunk) if chunk.len() as u64 > left => {
                let _ = chunks.send(chunk).await;
                break;
            }
            Ok(chunk) => {
                let length = chunk.len() as u64;
                left -= length;
                if chunks.send(chunk).await.is_err() {
                    break;
                }
            }
            Err(why) => {
                broken = Some((why, None));
                break;
            }
        }
    }
    drop(chunks);
    let written = written
        .await
        .map_err(io::Error::other)
        .and_then(|done| done);
    let writing = written.map_err(|source| no_room(source, &place, progress))?;
    if broken.is_none() && writing.length < part.size {
        broken = Some(("the connection was closed early".to_owned(), None));
    }
    Ok((writing, broken))
}

/// The error for a disk that became full during the download, with numbers.
fn no_room(source: io::Error, path: &Path, progress: &Progress) -> SourceError {
    let folder = path.parent().unwrap_or(path);
    match free_on(folder) {
        Ok(free) if source.kind() == io::ErrorKind::StorageFull => SourceError::NoRoom {
            needs: progress.left(),
            free,
            keep: 0,
            path: folder.to_owned(),
        },
        _ => SourceError::disk(path)(source),
    }
}

async fn open(incomplete: &Path, part: &Part, lock: Lock) -> Result<PartWriter, SourceError> {
    let (path, wanted) = (incomplete.to_owned(), part.clone());
    let opened = blocking(move || PartWriter::open(&path, &wanted, lock)).await;
    opened.map_err(SourceError::disk(incomplete))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(io::Error::other)?
}

fn incomplete(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".incomplete");
    path.with_file_name(name)
}

pub(super) async fn is_there(path: &Path, part: &Part) -> bool {
    let found = tokio::fs::metadata(path).await;
    found.is_ok_and(|found| found.is_file() && found.len() == part.size)
}

fn length_of(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Counts the local bytes of these files, complete or partial, and returns the sum.
pub(super) async fn count(parts: &mut [Part], layout: &Layout) -> u64 {
    let mut there = 0;
    for part in parts {
        let path = layout.blob(part);
        part.counted = if is_there(&path, part).await {
            part.size
        } else {
            length_of(&incomplete(&path)).min(part.size)
        };
        there += part.counted;
    }
    there
}

/// Finds digests for files in a bucket. The tag of a file that was uploaded in one piece is the MD5 of its content, unless the
/// bucket encrypts with its own keys; the smallest file is downloaded to find out. A `SHA256SUMS` file in the bucket takes
/// precedence.
pub(super) async fn learn_digests(
    parts: &mut [Part],
    origins: &Origins,
    progress: &Progress,
) -> Result<(), SourceError> {
    progress.set_stage("fetching digests");
    if let Some(sums) = parts.iter().find(|part| part.path == "SHA256SUMS") {
        let text = small(sums, origins, SUMS_MAX).await?;
        for line in String::from_utf8_lossy(&text).lines() {
            let Some((sum, name)) = line.split_once(char::is_whitespace) else {
                continue;
            };
            let name = name
                .trim_start()
                .trim_start_matches('*')
                .trim_start_matches("./");
            let is_sum = sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
            for part in parts.iter_mut().filter(|part| is_sum && part.path == name) {
                part.check = Check::Sha256(sum.to_lowercase());
            }
        }
    }
    let tagged = |part: &&Part| {
        let is_small = (1..=SAMPLE_MAX).contains(&part.size);
        part.check == Check::Size && is_small && md5_of(part).is_some()
    };
    let smallest = parts.iter().filter(tagged).min_by_key(|part| part.size);
    let Some(smallest) = smallest.cloned() else {
        return Ok(());
    };
    // A single mismatch may be a damaged transfer.
    for _ in 0..2 {
        let content = small(&smallest, origins, SAMPLE_MAX).await?;
        if Some(hex(&md5::Md5::digest(&content))) == md5_of(&smallest) {
            for part in parts.iter_mut().filter(|part| part.check == Check::Size) {
                part.check = md5_of(part).map_or(Check::Size, Check::Md5);
            }
            return Ok(());
        }
    }
    tracing::info!("the bucket's tags are not the MD5 of its files; only their sizes are checked");
    Ok(())
}

fn md5_of(part: &Part) -> Option<String> {
    let tag = part.etag.as_deref()?.trim_matches('"').to_lowercase();
    let is_md5 = tag.len() == 32 && tag.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_md5.then_some(tag)
}

/// Reads a small file into memory.
pub(super) async fn small(
    part: &Part,
    origins: &Origins,
    most: u64,
) -> Result<Vec<u8>, SourceError> {
    let broken = |why: String| SourceError::BrokenOff {
        file: origins.describe(part),
        tries: 1,
        why,
    };
    if part.size > most {
        return Err(broken(format!(
            "it has {} bytes; allowed: {most}",
            part.size
        )));
    }
    let mut opened = match origins.open(part, 0).await {
        Ok(opened) => opened,
        Err(PartProblem::Lasting(error)) => return Err(error),
        Err(PartProblem::Passing { why, .. }) => return Err(broken(why)),
    };
    let mut content = Vec::new();
    while let Some(chunk) = opened.body.next().await {
        content.extend_from_slice(&chunk.map_err(broken)?);
        if content.len() as u64 > most {
            return Err(broken(format!("it has more than {most} bytes")));
        }
    }
    Ok(content)
}
