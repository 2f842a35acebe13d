//! Transcription, translation and speech.

use utoipa::ToSchema;

/// A recording to transcribe.
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
    /// Text that sets the style, or that the recording continues.
    pub prompt: Option<String>,
    /// The response format: `json`, `text`, `srt`, `verbose_json` or `vtt`.
    pub response_format: Option<String>,
    /// 0 selects the likeliest words; higher values are more random.
    pub temperature: Option<f64>,
    /// Timestamps in a `verbose_json` response: `word`, `segment` or both.
    #[serde(rename = "timestamp_granularities[]")]
    pub timestamp_granularities: Option<Vec<String>>,
    /// Sends the text as events `transcript.text.delta` and `transcript.text.done`. Whisper models in the embedded engine only.
    pub stream: Option<bool>,
}

/// A recording to translate into English text.
#[derive(ToSchema)]
pub struct TranslationRequest {
    /// The recording: WAV, MP3 or another format that the model reads.
    #[schema(value_type = String, format = Binary)]
    pub file: Vec<u8>,
    /// The name of a speech model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// English text that sets the style, or that the recording continues.
    pub prompt: Option<String>,
    /// The response format: `json`, `text`, `srt`, `verbose_json` or `vtt`.
    pub response_format: Option<String>,
    /// 0 selects the likeliest words; higher values are more random.
    pub temperature: Option<f64>,
}

/// The transcript, for `json` and `verbose_json`. The other formats return plain text.
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
    /// Words with their times, in a `verbose_json` with the granularity `word`.
    pub words: Option<Vec<TranscribedWord>>,
}

/// A word of a recording.
#[derive(ToSchema)]
pub struct TranscribedWord {
    pub word: String,
    /// In seconds.
    pub start: f64,
    /// In seconds.
    pub end: f64,
}

/// Text to speak.
#[derive(ToSchema)]
pub struct SpeechRequest {
    /// The name of a voice model or an alias. `GET /v1/models` lists the names.
    #[schema(min_length = 1)]
    pub model: String,
    /// The text to speak.
    #[schema(min_length = 1)]
    pub input: String,
    /// A voice of the model.
    pub voice: Option<String>,
    /// Instructions for the voice, for models that support them.
    pub instructions: Option<String>,
    /// The audio format, such as `mp3` or `wav`.
    pub response_format: Option<String>,
    /// Speed factor; 1 is the normal speed.
    pub speed: Option<f64>,
    /// Only `audio`: the bytes are sent as they are produced.
    pub stream_format: Option<String>,
}
