//! Reads a model's tensors into memory in file order, with progress, so the first request does not wait for the disk. Optionally
//! checks and quantises them.

use super::folder::REMEDY;
use super::table::{FileEncoding, TensorLocation};
use super::{ModelFiles, Role, convert, legacy_names, verify};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::stored_tensor::{Encoding, StoredTensor};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options for loading tensors.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LoadPlan {
    /// Encoding to quantise matrices to that are stored as F32, F16 or BF16.
    pub quantization: Option<Encoding>,
    /// Check every number.
    pub verify: bool,
}

/// Bytes a thread reads at a time: enough to keep a disk busy, but small enough for frequent progress.
const PIECE_BYTES: usize = 8 << 20;
/// Range of thread counts; the threads wait for the disk more than they compute.
const THREADS: Range<usize> = 4..17;

/// A part of a tensor, read by one thread.
struct Piece<'a> {
    name: &'a str,
    place: &'a TensorLocation,
    range: Range<usize>,
}

/// A tensor to convert.
struct PendingConversion {
    name: String,
    place: TensorLocation,
    encoding: Encoding,
}

/// Converted tensors, for [`ModelFiles::take`].
#[derive(Debug, Default)]
#[must_use = "the model computes with them"]
pub(crate) struct ConvertedTensors(Vec<(String, StoredTensor)>);

impl ModelFiles {
    /// Reads all tensors that the model computes with. Runs concurrently with other uses of the files; pass the result to
    /// [`Self::take`].
    ///
    /// # Errors
    /// If the disk cannot be read, a file was truncated, a checked number is not finite, or the load was cancelled.
    pub fn read(
        &self,
        plan: LoadPlan,
        progress: &Progress,
    ) -> Result<ConvertedTensors, EngineError> {
        let rewritten = self.rewritten(plan)?;
        let names: Vec<&str> = self.used().collect();
        let mut pieces: Vec<Piece<'_>> = names
            .iter()
            .filter_map(|name| Some((*name, self.table.places.get(*name)?)))
            .flat_map(|(name, place)| pieces(name, place))
            .collect();
        pieces.sort_by_key(|piece| (piece.place.file, piece.range.start));
        let read: u64 = pieces.iter().map(|piece| piece.range.len() as u64).sum();
        let written: u64 = rewritten
            .iter()
            .map(|tensor| tensor.place.range.len() as u64)
            .sum();
        let counter = Counter {
            progress,
            total: read + written,
            done: Mutex::new(0),
        };
        self.read_ahead(&pieces, plan.verify, &counter)?;
        let mut replaced = Vec::new();
        for tensor in rewritten {
            let stored = self.rewrite(&tensor)?;
            counter.add(tensor.place.range.len() as u64)?;
            replaced.push((tensor.name, stored));
        }
        Ok(ConvertedTensors(replaced))
    }

    /// Replaces the files' tensors with the converted ones.
    pub fn take(&mut self, written: ConvertedTensors) {
        self.replaced.extend(written.0);
    }

    /// Reads all tensors and takes the converted ones.
    ///
    /// # Errors
    /// See [`Self::read`].
    pub fn load(&mut self, plan: LoadPlan, progress: &Progress) -> Result<(), EngineError> {
        let written = self.read(plan, progress)?;
        self.take(written);
        Ok(())
    }

    /// The name of a tensor in the files.
    fn own_name(&self, name: &str) -> String {
        let architecture = self.spec.as_ref().map(|spec| spec.architecture.as_str());
        legacy_names::own(architecture.unwrap_or_default(), name)
    }

    /// The tensors that must be converted, with their new encodings.
    fn rewritten(&self, plan: LoadPlan) -> Result<Vec<PendingConversion>, EngineError> {
        let Some(spec) = &self.spec else {
            return Ok(Vec::new());
        };
        let expected = self.expected()?.into_iter();
        Ok(expected
            .filter_map(|expected| {
                let place = self.table.places.get(&expected.name)?;
                let matrix = match expected.role {
                    Role::Matrix | Role::Head => true,
                    Role::Embedding => spec.ties_head,
                    Role::Router | Role::Row => false,
                };
                let encoding = match (&place.written, plan.quantization) {
                    // Rows that are not complete blocks keep their encoding.
                    (FileEncoding::Plain(from), to) if place.transposed => {
                        let columns = place.shape.last().copied().unwrap_or(0);
                        let to = to.filter(|_| matrix);
                        Some(
                            to.and_then(|to| convert::fitting(to, columns))
                                .unwrap_or(*from),
                        )
                    }
                    (FileEncoding::Converted(_), _) => Some(Encoding::Q8_0),
                    (FileEncoding::Plain(from), Some(to))
                        if matrix && from.block_numbers() == 1 =>
                    {
                        convert::fitting(to, place.shape.last().copied().unwrap_or(0))
                    }
                    _ => None,
                };
                Some(PendingConversion {
                    encoding: encoding?,
                    place: place.clone(),
                    name: expected.name,
                })
            })
            .collect())
    }

    fn rewrite(&self, tensor: &PendingConversion) -> Result<StoredTensor, EngineError> {
        let PendingConversion {
            name,
            place,
            encoding,
        } = tensor;
        let file = &self.table.files[place.file];
        let bytes = &(**file).as_ref()[place.range.clone()];
        let own = self.own_name(name);
        let wrong = |problem: String| {
            EngineError::model(
                &file.path,
                format!("the tensor {own} cannot be converted to {encoding:?} ({problem})"),
                REMEDY,
            )
        };
        let columns = place.shape.last().copied().unwrap_or(1);
        let turned = match &place.written {
            FileEncoding::Plain(from) if place.transposed => {
                Some(convert::transposed(bytes, *from, columns).map_err(wrong)?)
            }
            _ => None,
        };
        let written = match (turned, &place.written) {
            (Some(turned), FileEncoding::Plain(from)) if from == encoding => turned,
            (turned, from) => {
                let bytes = turned.as_deref().unwrap_or(bytes);
                convert::rewrite(bytes, from, *encoding, columns).map_err(wrong)?
            }
        };
        let range = 0..written.len();
        let source = std::sync::Arc::new(written);
        StoredTensor::new(*encoding, place.shape.clone(), source, range)
            .ok_or_else(|| wrong("its size does not fit its shape".to_owned()))
    }

    fn read_ahead(
        &self,
        pieces: &[Piece<'_>],
        verify: bool,
        counter: &Counter<'_>,
    ) -> Result<(), EngineError> {
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<EngineError>> = Mutex::new(None);
        let work = || {
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self
                    .read_piece(piece, verify)
                    .and_then(|()| counter.add(piece.range.len() as u64))
                {
                    // Other threads stop at their next piece.
                    next.store(pieces.len(), Ordering::Relaxed);
                    lock(&failed).get_or_insert(error);
                    return;
                }
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores
            .clamp(THREADS.start, THREADS.end - 1)
            .min(pieces.len());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        match failed.into_inner() {
            Ok(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn read_piece(&self, piece: &Piece<'_>, verify: bool) -> Result<(), EngineError> {
        let file = &self.table.files[piece.place.file];
        file.expect_soon(piece.range.clone());
        file.populate(piece.range.clone())?;
        if verify {
            let bytes = &(**file).as_ref()[piece.range.clone()];
            if let Some(place) = verify::first_that_is_none(bytes, &piece.place.written) {
                let before = (piece.range.start - piece.place.range.start) + place;
                return Err(EngineError::model(
                    &file.path,
                    format!(
                        "the tensor {} has a number that is not finite at byte {before} of {}",
                        self.own_name(piece.name),
                        piece.place.range.len()
                    ),
                    REMEDY,
                ));
            }
        }
        Ok(())
    }
}

/// Locks a mutex even if poisoned: the scope propagates the panic of the other thread, and the data remains consistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Counts the bytes read, and reports them in increasing order from any thread.
struct Counter<'a> {
    progress: &'a Progress,
    total: u64,
    done: Mutex<u64>,
}

impl Counter<'_> {
    fn add(&self, bytes: u64) -> Result<(), EngineError> {
        let mut done = lock(&self.done);
        *done += bytes;
        self.progress.weights(*done, self.total)
    }
}

/// Splits a tensor into pieces at number or block boundaries.
fn pieces<'a>(name: &'a str, place: &'a TensorLocation) -> impl Iterator<Item = Piece<'a>> {
    let block = match &place.written {
        FileEncoding::Plain(encoding) => encoding.block_bytes(),
        FileEncoding::Converted(kind) => kind.type_size(),
        FileEncoding::Foreign(_) => 1,
    };
    let step = PIECE_BYTES / block * block;
    let range = place.range.clone();
    range.clone().step_by(step).map(move |start| Piece {
        name,
        place,
        range: start..range.end.min(start + step),
    })
}
