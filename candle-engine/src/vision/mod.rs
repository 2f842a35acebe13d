//! Images in chat requests: from a part of a message to the pixels that a model sees, and to the tokens that stand for them.
//!
//! ```text
//!   data URL ──bytes──> Encoded (header read, limits checked) ──grid──> tokens of the prompt (context checked)
//!                                                              └──decode, resize──> PromptImages ──> the batch
//! ```
//!
//! Everything that a client can make large is checked before it is allocated: the number of images, their bytes, the pixels that
//! a header promises, and the tokens of the prompt. One image is decoded at a time, on the threads that read requests.

mod decode;
mod held;
mod processor;
mod prompt;
mod resize;
mod source;
#[cfg(test)]
mod tests;

pub(crate) use processor::{Grid, Processor, ResizeRule};
pub(crate) use prompt::{EncodedImages, PlacedImage, PromptImages, Vision};
pub(crate) use source::ImagePart;
