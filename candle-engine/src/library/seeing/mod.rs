//! Decoders that see, written on `candle-nn`: Qwen3-VL and PaddleOCR-VL. A vision tower turns an image into rows of the text, and
//! positions have three axes.
//!
//! The families differ in the names of tensors, in the order of axes and in some norms, which are data. The library's versions are
//! not used: see `docs/internals/engine-library.md`.

mod config;
mod paddle_ocr_vl;
mod positions;
mod qwen3_vl;
mod text;
mod tower;

use super::library_model::{LibraryModel, Sizes};
use crate::files::ConfigFields;
use crate::vision::PromptImages;
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use config::Config;
pub(super) use paddle_ocr_vl::PaddleOcrVl;
use positions::SeenImage;
pub(super) use qwen3_vl::Qwen3Vl;
use std::marker::PhantomData;
use text::Text;
use tower::Tower;

/// A family: how its `config.json` describes it.
pub(super) trait SeeingFamily: Send + 'static {
    /// # Errors
    /// The problem, if a field is missing, wrong, or requires something the engine does not compute.
    fn read(config: ConfigFields<'_>) -> std::result::Result<Config, String>;
}

pub(super) struct Seeing<F> {
    tower: Tower,
    text: Text,
    /// The images of the sequence, in order.
    seen: Vec<SeenImage>,
    family: PhantomData<F>,
}

impl<F: SeeingFamily> LibraryModel for Seeing<F> {
    type Config = Config;

    fn describe(
        config: ConfigFields<'_>,
        _: usize,
    ) -> std::result::Result<(Config, Sizes), String> {
        let config = F::read(config)?;
        config.check()?;
        let sizes = config.sizes();
        Ok((config, sizes))
    }

    fn load(config: &Config, weights: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            tower: Tower::load(&config.vision, &weights)?,
            text: Text::load(&config.text, &weights)?,
            seen: Vec::new(),
            family: PhantomData,
        })
    }

    fn see(&mut self, images: &PromptImages) -> Result<()> {
        self.seen.clear();
        for image in images.iter() {
            let rows = self.tower.forward(image)?;
            self.seen.push(SeenImage::new(image, rows));
        }
        Ok(())
    }

    fn forward(&mut self, tokens: &Tensor, past: usize) -> Result<Tensor> {
        self.text.forward(tokens, past, &self.seen)
    }

    fn reset(&mut self) -> bool {
        self.seen.clear();
        self.text.clear();
        true
    }
}
