//! Frees a decoder's memory while its engine sleeps: the cache and working memory of the compute thread, and the pages of mapped
//! weights.

use super::queue::Batch;
use crate::error::EngineError;
use crate::files::MappedFile;
use crate::sleep::Sleeper;
use std::sync::Arc;

/// A batch that can sleep, with the files of its weights.
pub(crate) struct BatchSleeper {
    pub batch: Arc<Batch>,
    pub files: Vec<Arc<MappedFile>>,
}

impl Sleeper for BatchSleeper {
    fn sleep(&self) -> Result<(), EngineError> {
        self.batch.rest(true)?;
        self.files.iter().try_for_each(|file| file.give_back())
    }

    fn wake(&self) -> Result<(), EngineError> {
        self.files.iter().for_each(|file| file.expect_all_soon());
        self.batch.rest(false)
    }
}
