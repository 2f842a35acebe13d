//! Images as a request writes them: `image_url` parts with data URLs.

use crate::api_error::ApiError;
use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::Value;

/// Maximum number of images in a request.
pub(super) const IMAGES_MAX: usize = 16;
/// Maximum size of an image's file.
pub(super) const IMAGE_BYTES_MAX: usize = 10 * 1024 * 1024;
const MEDIA_TYPES: [&str; 5] = [
    "image/png",
    "image/jpeg",
    "image/jpg",
    "image/webp",
    "image/gif",
];
/// Longest part of a client's text in a message.
const SHOWN: usize = 60;

/// An `image_url` part of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImagePart {
    /// The path of the part in the request, for error messages.
    pub place: String,
    pub url: String,
}

impl ImagePart {
    /// Reads the part at `place`. The URL is a string, or the field `url` of an object.
    ///
    /// # Errors
    /// 400 if the part has no URL.
    pub fn parse(place: &str, part: &Value) -> Result<Self, ApiError> {
        let address = &part["image_url"];
        let url = address.as_str().or_else(|| address["url"].as_str());
        let place = format!("{place}.image_url");
        match url {
            Some(url) => Ok(Self {
                place,
                url: url.to_owned(),
            }),
            None => {
                let message = format!("`{place}` must be an object with the string `url`");
                Err(ApiError::field(place, message))
            }
        }
    }

    /// Returns the bytes of the image's file.
    ///
    /// # Errors
    /// 400 if the URL is not a data URL of a supported media type, its text is not base64, or the file is empty or too large.
    pub fn bytes(&self) -> Result<Vec<u8>, ApiError> {
        let wrong = |problem: String| {
            let message = format!("`{}` {problem}", self.place);
            ApiError::field(self.place.clone(), message)
        };
        let Some(rest) = strip_scheme(&self.url) else {
            return Err(wrong(format!(
                "is `{}`, and the engine fetches nothing for a request: send the image as a data: URL",
                shown(&self.url)
            )));
        };
        let Some((head, text)) = rest.split_once(',') else {
            return Err(wrong(
                "is a data: URL without a comma: write data:image/png;base64,…".to_owned(),
            ));
        };
        let mut parameters = head.split(';').map(str::trim);
        let media_type = parameters.next().unwrap_or_default().to_ascii_lowercase();
        if !MEDIA_TYPES.contains(&media_type.as_str()) {
            return Err(wrong(format!(
                "has the media type `{}`; this engine reads image/png, image/jpeg, image/webp and image/gif",
                shown(&media_type)
            )));
        }
        if !parameters.any(|parameter| parameter.eq_ignore_ascii_case("base64")) {
            return Err(wrong(
                "is a data: URL without `;base64`: encode the image in base64".to_owned(),
            ));
        }
        // Four letters are three bytes.
        let bytes = text.len() / 4 * 3;
        if bytes > IMAGE_BYTES_MAX + 3 {
            return Err(wrong(format!(
                "has about {bytes} bytes; at most {IMAGE_BYTES_MAX} are allowed: send a smaller image"
            )));
        }
        let bytes = decoder()
            .decode(text)
            .map_err(|error| wrong(format!("is not valid base64 ({error})")))?;
        if bytes.is_empty() {
            return Err(wrong("is an image of 0 bytes".to_owned()));
        }
        if bytes.len() > IMAGE_BYTES_MAX {
            return Err(wrong(format!(
                "has {} bytes; at most {IMAGE_BYTES_MAX} are allowed: send a smaller image",
                bytes.len()
            )));
        }
        Ok(bytes)
    }
}

/// Returns the text after `data:`, in letters of any case.
fn strip_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once(':')?;
    scheme.eq_ignore_ascii_case("data").then_some(rest)
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Accepts text with and without padding.
fn decoder() -> GeneralPurpose {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(&STANDARD, config)
}
