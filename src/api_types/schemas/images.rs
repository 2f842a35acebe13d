//! Image generation, edits and variations.

use utoipa::ToSchema;

/// An image generation request.
///
/// An engine may accept fields that are not listed here.
#[derive(ToSchema)]
pub struct ImageRequest {
    /// The name of an image model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The prompt.
    #[schema(min_length = 1)]
    pub prompt: String,
    #[serde(flatten)]
    pub image: ImageFields,
    /// Send the images as server-sent events, if the engine can.
    pub stream: Option<bool>,
    /// Number of partial images in a stream.
    pub partial_images: Option<u32>,
    /// OpenAI: `auto` or `low`.
    pub moderation: Option<String>,
    /// OpenAI: `vivid` or `natural`.
    pub style: Option<String>,
    /// Content that the images must not show.
    pub negative_prompt: Option<String>,
    /// Number of diffusion steps.
    pub num_inference_steps: Option<u32>,
    /// stable-diffusion.cpp's name of `num_inference_steps`.
    pub steps: Option<u32>,
    /// The strength with which the prompt guides the images.
    pub guidance_scale: Option<f64>,
    /// stable-diffusion.cpp's name of `guidance_scale`.
    pub cfg_scale: Option<f64>,
    /// Qwen-Image's name of `guidance_scale`.
    pub true_cfg_scale: Option<f64>,
    /// Permitted difference from the source image.
    pub strength: Option<f64>,
    /// Random seed. The same seed produces the same images.
    pub seed: Option<i64>,
    /// In pixels, for engines that do not read `size`.
    pub width: Option<u32>,
    /// In pixels, for engines that do not read `size`.
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
    /// Id of your end user, for your records.
    pub user: Option<String>,
}

/// An image edit request.
///
/// An engine may accept fields that are not listed here.
#[derive(ToSchema)]
pub struct ImageEditRequest {
    /// The name of an image model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The image. Use `image[]` for several.
    #[schema(value_type = String, format = Binary)]
    pub image: Vec<u8>,
    /// Mask of the area that may change.
    #[schema(value_type = Option<String>, format = Binary)]
    pub mask: Option<Vec<u8>>,
    /// The prompt.
    pub prompt: String,
    /// `high` or `low`.
    pub input_fidelity: Option<String>,
    #[serde(flatten)]
    pub fields: ImageFields,
}

/// An image variation request.
#[derive(ToSchema)]
pub struct ImageVariationRequest {
    /// The name of an image model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The source image.
    #[schema(value_type = String, format = Binary)]
    pub image: Vec<u8>,
    #[serde(flatten)]
    pub fields: ImageFields,
}

/// Images.
#[derive(ToSchema)]
pub struct Images {
    /// Unix time in seconds.
    pub created: Option<i64>,
    pub data: Vec<Image>,
}

#[derive(ToSchema)]
pub struct Image {
    /// Base64 image data.
    pub b64_json: Option<String>,
    /// Address of the image, if the engine stores it.
    pub url: Option<String>,
    /// The prompt after changes by the engine.
    pub revised_prompt: Option<String>,
}
