//! Images in a prompt: the tokens that stand for them, and their pixels.

use super::decode::Encoded;
use super::held::{HELD_BYTES_MAX, HeldBytes, HeldPart};
use super::processor::{Grid, Processor, places};
use super::resize::bicubic;
use super::source::{IMAGES_MAX, ImagePart};
use crate::api_error::ApiError;
use crate::chat_template::ChatTemplate;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The images of a prompt, shared by its sequences.
#[derive(Clone, Default)]
pub(crate) struct PromptImages(Arc<[PlacedImage]>);

/// An image at its place in a prompt.
pub(crate) struct PlacedImage {
    /// The position of its first token.
    pub first: usize,
    pub grid: Grid,
    pixels: Vec<u8>,
    processor: Arc<Processor>,
    _held: HeldPart,
}

impl PlacedImage {
    /// See [`Processor::patches`].
    pub fn patches(&self) -> Vec<f32> {
        self.processor.patches(self.grid, &self.pixels)
    }

    /// The row and column of every patch, in the order of [`Self::patches`].
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        places(self.grid, self.processor.merge)
    }

    /// Its size in tokens.
    pub fn token_grid(&self) -> Grid {
        Grid {
            rows: self.grid.rows / self.processor.merge,
            columns: self.grid.columns / self.processor.merge,
        }
    }
}

impl PromptImages {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &PlacedImage> {
        self.0.iter()
    }
}

impl fmt::Debug for PromptImages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = self.iter().map(|image| (image.first, image.grid));
        f.debug_list().entries(places).finish()
    }
}

/// The images of a request whose headers were read.
#[derive(Default)]
pub(crate) struct EncodedImages(Vec<(Encoded, Grid)>);

/// Images of a prompt whose pixels are not decoded yet, with the positions of their first tokens.
pub(crate) struct UndecodedImages(Vec<(Encoded, Grid, usize)>);

/// The reader of a model's images.
pub(crate) struct Vision {
    processor: Arc<Processor>,
    /// The token that stands for a part of an image.
    placeholder: u32,
    /// The chat template writes texts only in lists of parts.
    needs_parts: bool,
    held: Arc<HeldBytes>,
    /// Held while an image is decoded and resized.
    turn: Mutex<()>,
}

impl Vision {
    pub fn new(processor: Processor, placeholder: u32) -> Self {
        Self {
            processor: Arc::new(processor),
            placeholder,
            needs_parts: false,
            held: Arc::default(),
            turn: Mutex::default(),
        }
    }

    /// Adapts to the model's chat template, which may ignore contents that are strings.
    pub fn with_template(mut self, template: Option<&ChatTemplate>) -> Self {
        const TEXT: &str = "text-of-a-probe";
        let probe = [json!({"role": "user", "content": TEXT})];
        // A template that rejects the probe does so for other reasons.
        let written = template.map(|template| template.render_as(&probe, true));
        self.needs_parts = matches!(written, Some(Ok(text)) if !text.contains(TEXT));
        self
    }

    /// Gives messages the form that the template needs.
    pub fn adapt(&self, messages: &mut [Value]) {
        let contents = messages
            .iter_mut()
            .filter_map(|message| message.get_mut("content"));
        for content in contents.filter(|content| self.needs_parts && content.is_string()) {
            *content = json!([{"type": "text", "text": content.take()}]);
        }
    }

    /// Reads the headers of a request's images.
    ///
    /// # Errors
    /// 400 that names the part if there are too many images, or an image cannot be decoded within the limits.
    pub fn read(&self, parts: &[ImagePart]) -> Result<EncodedImages, ApiError> {
        if let Some(part) = parts.get(IMAGES_MAX) {
            let message = format!(
                "the request has {} images; at most {IMAGES_MAX} are allowed: send fewer",
                parts.len()
            );
            return Err(ApiError::field(part.place.clone(), message));
        }
        let read = |part: &ImagePart| {
            let image = Encoded::new(&part.place, part.bytes()?)?;
            let grid = self.processor.grid(image.width, image.height);
            let grid = grid.map_err(|problem| {
                ApiError::field(part.place.clone(), format!("`{}` {problem}", part.place))
            })?;
            Ok((image, grid))
        };
        parts
            .iter()
            .map(read)
            .collect::<Result<_, _>>()
            .map(EncodedImages)
    }

    /// Replaces the placeholder of each image in a rendered prompt by as many as the image has tokens.
    ///
    /// # Errors
    /// 400 if the prompt has more or fewer placeholders than images.
    pub fn place(
        &self,
        tokens: Vec<u32>,
        images: EncodedImages,
    ) -> Result<(Vec<u32>, UndecodedImages), ApiError> {
        let is_placeholder = |token: &&u32| **token == self.placeholder;
        let found = tokens.iter().filter(is_placeholder).count();
        if found != images.0.len() {
            let message = format!(
                "the rendered messages have {found} placeholders (token {}) for {} images: remove the placeholder's text from the messages, and send images in messages of the user",
                self.placeholder,
                images.0.len()
            );
            return Err(ApiError::field("messages", message));
        }
        let mut placed = Vec::with_capacity(found);
        let mut all = Vec::with_capacity(tokens.len());
        let mut images = images.0.into_iter();
        for token in tokens {
            let image = (token == self.placeholder).then(|| images.next());
            match image.flatten() {
                Some((image, grid)) => {
                    let count = self.processor.tokens(grid);
                    placed.push((image, grid, all.len()));
                    all.extend(std::iter::repeat_n(token, count));
                }
                None => all.push(token),
            }
        }
        Ok((all, UndecodedImages(placed)))
    }

    /// Decodes and resizes the images of a prompt, one after another.
    ///
    /// # Errors
    /// 400 that names the part if an image is damaged; 429 if the images of other requests hold too much memory.
    pub fn decode(&self, images: UndecodedImages) -> Result<PromptImages, ApiError> {
        let decode = |(image, grid, first): (Encoded, Grid, usize)| {
            let [width, height] = [grid.columns, grid.rows].map(|side| side * self.processor.patch);
            let bytes = (width * height * 3) as u64;
            let held = self.held.take(bytes).map_err(|others| {
                let message = format!(
                    "`{}` needs {bytes} bytes, and images of waiting requests hold {others} of {HELD_BYTES_MAX}; try again later",
                    image.place()
                );
                ApiError::with_status(StatusCode::TOO_MANY_REQUESTS, "images_full", message)
            })?;
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let pixels = bicubic(image.decode()?, width as u32, height as u32);
            drop(turn);
            Ok(PlacedImage {
                first,
                grid,
                pixels,
                processor: Arc::clone(&self.processor),
                _held: held,
            })
        };
        let placed = images.0.into_iter().map(decode);
        let placed = placed.collect::<Result<Vec<_>, ApiError>>()?;
        Ok(PromptImages(placed.into()))
    }
}
