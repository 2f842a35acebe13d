//! Reads the headers of image files, and decodes them within limits.

use crate::api_error::ApiError;
use image::metadata::Orientation;
use image::{
    DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits, Rgb, RgbImage, RgbaImage,
};
use std::io::Cursor;

/// Maximum number of pixels of a file: a camera of 24 megapixels.
const PIXELS_MAX: u64 = 24 * 1024 * 1024;
/// Maximum size of decoded pixels in the form that the file stores.
const DECODED_BYTES_MAX: u64 = 128 * 1024 * 1024;
/// Memory of a decoder, with its decoded pixels.
const DECODER_BYTES_MAX: u64 = 2 * DECODED_BYTES_MAX;
const FORMATS: [ImageFormat; 4] = [
    ImageFormat::Png,
    ImageFormat::Jpeg,
    ImageFormat::WebP,
    ImageFormat::Gif,
];

/// An image whose header was read and whose pixels were not.
#[derive(Debug)]
pub(super) struct Encoded {
    place: String,
    bytes: Vec<u8>,
    format: ImageFormat,
    orientation: Orientation,
    /// The size as it is shown, which a rotation by the file's metadata may have swapped.
    pub width: u32,
    pub height: u32,
}

impl Encoded {
    /// Reads the header of a file, which came from the field `place`.
    ///
    /// # Errors
    /// 400 if the file has another format, its header is damaged, or it has too many pixels.
    pub fn new(place: &str, bytes: Vec<u8>) -> Result<Self, ApiError> {
        let wrong = |problem: String| {
            let message = format!("`{place}` {problem}");
            ApiError::field(place, message)
        };
        let format = image::guess_format(&bytes).ok();
        let Some(format) = format.filter(|format| FORMATS.contains(format)) else {
            return Err(wrong(
                "is not a PNG, JPEG, WebP or GIF file, whatever its media type".to_owned(),
            ));
        };
        let damaged = |error: &image::ImageError| {
            wrong(format!("is a damaged {} file ({error})", name(format)))
        };
        let reader = reader(&bytes, format);
        let mut decoder = reader.into_decoder().map_err(|error| damaged(&error))?;
        let (width, height) = decoder.dimensions();
        let pixels = u64::from(width) * u64::from(height);
        if pixels == 0 || pixels > PIXELS_MAX {
            return Err(wrong(format!(
                "has {width} × {height} pixels, which are {pixels}; between 1 and {PIXELS_MAX} are allowed: send a smaller image"
            )));
        }
        let decoded = decoder.total_bytes();
        if decoded > DECODED_BYTES_MAX {
            return Err(wrong(format!(
                "has {width} × {height} pixels of {decoded} bytes; at most {DECODED_BYTES_MAX} are allowed: send a smaller image, or one with 8 bits for each channel"
            )));
        }
        // Damaged metadata does not prevent decoding.
        let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
        drop(decoder);
        let (width, height) = if is_turned(orientation) {
            (height, width)
        } else {
            (width, height)
        };
        Ok(Self {
            place: place.to_owned(),
            bytes,
            format,
            orientation,
            width,
            height,
        })
    }

    /// Decodes the pixels; of an animation, the first frame. Transparent pixels are put on white, as `transformers` does.
    ///
    /// # Errors
    /// 400 if the file is damaged.
    pub fn decode(self) -> Result<RgbImage, ApiError> {
        let read = reader(&self.bytes, self.format)
            .into_decoder()
            .and_then(DynamicImage::from_decoder);
        let mut image = read.map_err(|error| {
            let message = format!(
                "`{}` is a damaged {} file ({error})",
                self.place,
                name(self.format)
            );
            ApiError::field(self.place.clone(), message)
        })?;
        drop(self.bytes);
        image.apply_orientation(self.orientation);
        Ok(if image.color().has_alpha() {
            on_white(&image.into_rgba8())
        } else {
            image.into_rgb8()
        })
    }

    /// The field of the request that holds the image.
    pub fn place(&self) -> &str {
        &self.place
    }
}

/// Puts an image on a white background, with the rounding of Pillow.
fn on_white(image: &RgbaImage) -> RgbImage {
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let [red, green, blue, alpha] = image.get_pixel(x, y).0;
        Rgb([red, green, blue].map(|byte| {
            let (byte, alpha) = (u32::from(byte), u32::from(alpha));
            let sum = (byte * alpha + 255 * (255 - alpha)) * 128 + (128 << 7);
            ((((sum >> 8) + sum) >> 8) >> 7) as u8
        }))
    })
}

fn reader(bytes: &[u8], format: ImageFormat) -> ImageReader<Cursor<&[u8]>> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(DECODER_BYTES_MAX);
    reader.limits(limits);
    reader
}

fn name(format: ImageFormat) -> &'static str {
    match format {
        ImageFormat::Png => "PNG",
        ImageFormat::Jpeg => "JPEG",
        ImageFormat::WebP => "WebP",
        _ => "GIF",
    }
}

fn is_turned(orientation: Orientation) -> bool {
    matches!(
        orientation,
        Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH
    )
}
