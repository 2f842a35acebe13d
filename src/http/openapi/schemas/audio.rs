//! Speech as text, and text as speech.

use utoipa::ToSchema;

/// A recording whose words become text.
#[derive(ToSchema)]
pub struct TranscriptionRequest {
    /// The recording: WAV, MP3 or another format that the model reads.
    #[schema(value_type = String, format = Binary)]
    pub file: Vec<u8>,
    /// The name of a speech model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The language of the recording, such as `en`.
    pub language: Option<String>,
    /// A text that shows the style, or that the recording continues.
    pub prompt: Option<String>,
    /// The form of the answer: `json`, `text`, `srt`, `verbose_json` or `vtt`.
    pub response_format: Option<String>,
    /// 0 takes the likeliest words; higher values are more random.
    pub temperature: Option<f64>,
    /// Which times a `verbose_json` has: `word`, `segment` or both.
    #[serde(rename = "timestamp_granularities[]")]
    pub timestamp_granularities: Option<Vec<String>>,
}

/// A recording whose words become English text.
#[derive(ToSchema)]
pub struct TranslationRequest {
    /// The recording: WAV, MP3 or another format that the model reads.
    #[schema(value_type = String, format = Binary)]
    pub file: Vec<u8>,
    /// The name of a speech model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// An English text that shows the style, or that the recording continues.
    pub prompt: Option<String>,
    /// The form of the answer: `json`, `text`, `srt`, `verbose_json` or `vtt`.
    pub response_format: Option<String>,
    /// 0 takes the likeliest words; higher values are more random.
    pub temperature: Option<f64>,
}

/// The text of a recording, as `json` and `verbose_json` have it. The other forms are plain text.
#[derive(ToSchema)]
pub struct Transcription {
    pub text: String,
    /// The language, in a `verbose_json`.
    pub language: Option<String>,
    /// The length in seconds, in a `verbose_json`.
    #[schema(value_type = Option<Value>)]
    pub duration: Option<f64>,
    /// Sentences with their times, in a `verbose_json`.
    #[schema(value_type = Option<Vec<Object>>)]
    pub segments: Option<Vec<String>>,
    /// Words with their times, in a `verbose_json`.
    #[schema(value_type = Option<Vec<Object>>)]
    pub words: Option<Vec<String>>,
}

/// A text that is spoken.
#[derive(ToSchema)]
pub struct SpeechRequest {
    /// The name of a voice model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The text.
    #[schema(min_length = 1)]
    pub input: String,
    /// A voice of the model.
    pub voice: Option<String>,
    /// How the text is spoken, for models that read instructions.
    pub instructions: Option<String>,
    /// The form of the sound, such as `mp3` or `wav`.
    pub response_format: Option<String>,
    /// 1 is the usual speed.
    pub speed: Option<f64>,
    /// `audio`, the only one: the bytes come as they are made.
    pub stream_format: Option<String>,
}
