//! Pictures from texts and from pictures.

use utoipa::ToSchema;

/// A text from which images are made.
///
/// An engine may accept fields that are not listed here.
#[derive(ToSchema)]
pub struct ImageRequest {
    /// The name of an image model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The text.
    #[schema(min_length = 1)]
    pub prompt: String,
    #[serde(flatten)]
    pub image: ImageFields,
    /// Send the images as server-sent events, if the engine can.
    pub stream: Option<bool>,
    /// The number of images before they are complete, in a stream.
    pub partial_images: Option<u32>,
    /// OpenAI: `auto` or `low`.
    pub moderation: Option<String>,
    /// OpenAI: `vivid` or `natural`.
    pub style: Option<String>,
    /// Content that the images must not show.
    pub negative_prompt: Option<String>,
    /// The steps of a diffusion model.
    pub num_inference_steps: Option<u32>,
    /// stable-diffusion.cpp's name of the same.
    pub steps: Option<u32>,
    /// The strength with which the prompt guides the images.
    pub guidance_scale: Option<f64>,
    /// stable-diffusion.cpp's name of the same.
    pub cfg_scale: Option<f64>,
    /// Qwen-Image's name of the same.
    pub true_cfg_scale: Option<f64>,
    /// The amount by which the images may differ from their source.
    pub strength: Option<f64>,
    /// The same seed makes the same images.
    pub seed: Option<i64>,
    /// In pixels, where the engine does not read `size`.
    pub width: Option<u32>,
    /// In pixels, where the engine does not read `size`.
    pub height: Option<u32>,
}

/// Parameters of image generation.
#[derive(ToSchema)]
pub struct ImageFields {
    /// The number of images.
    #[schema(minimum = 1)]
    pub n: Option<u32>,
    /// Width and height in pixels.
    #[schema(examples("1024x1024"))]
    pub size: Option<String>,
    pub quality: Option<String>,
    /// `transparent`, `opaque` or `auto`.
    pub background: Option<String>,
    /// `b64_json` or `url`.
    pub response_format: Option<String>,
    /// `png`, `jpeg` or `webp`.
    pub output_format: Option<String>,
    /// 0 to 100.
    pub output_compression: Option<u32>,
    /// Your own user, for your own records.
    pub user: Option<String>,
}

/// An image that is changed by a text.
///
/// An engine may accept fields that are not listed here.
#[derive(ToSchema)]
pub struct ImageEditRequest {
    /// The name of an image model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The picture. `image[]` takes several.
    #[schema(value_type = String, format = Binary)]
    pub image: Vec<u8>,
    /// The area of the picture that may change.
    #[schema(value_type = Option<String>, format = Binary)]
    pub mask: Option<Vec<u8>>,
    /// The text.
    pub prompt: String,
    /// `high` or `low`.
    pub input_fidelity: Option<String>,
    #[serde(flatten)]
    pub fields: ImageFields,
}

/// An image of which variations are made.
#[derive(ToSchema)]
pub struct ImageVariationRequest {
    /// The name of an image model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The picture.
    #[schema(value_type = String, format = Binary)]
    pub image: Vec<u8>,
    #[serde(flatten)]
    pub fields: ImageFields,
}

/// Images.
#[derive(ToSchema)]
pub struct Images {
    /// Seconds since 1970.
    pub created: Option<i64>,
    pub data: Vec<Image>,
}

#[derive(ToSchema)]
pub struct Image {
    /// The picture in base64.
    pub b64_json: Option<String>,
    /// The address of the picture, if the engine keeps it.
    pub url: Option<String>,
    /// The text as the engine has changed it.
    pub revised_prompt: Option<String>,
}
