//! Chat messages and their content parts.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// A message of a conversation.
#[derive(ToSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// Instructions for the entire conversation.
    #[schema(title = "SystemMessage")]
    System {
        content: ChatContent,
        /// The name of the author.
        name: Option<String>,
    },
    /// Newer name of `system`.
    #[schema(title = "DeveloperMessage")]
    Developer {
        content: ChatContent,
        /// The name of the author.
        name: Option<String>,
    },
    /// A message from the user.
    #[schema(title = "UserMessage")]
    User {
        content: ChatContent,
        /// The name of the author.
        name: Option<String>,
    },
    /// An earlier message of the model. A message returned by this API can be sent back unchanged.
    #[schema(title = "AssistantMessage")]
    Assistant {
        content: Option<ChatContent>,
        /// The name of the author.
        name: Option<String>,
        /// The model's refusal, if any.
        refusal: Option<String>,
        /// The functions that the model called. Each call needs a `tool` message with its result.
        tool_calls: Option<Vec<ChatToolCall>>,
        /// The model's reasoning for this message. The chat template decides if the model sees it again.
        reasoning_content: Option<String>,
        /// Same as `reasoning_content`, under the name that some engines use.
        reasoning: Option<String>,
        /// Id of the audio, for spoken output.
        #[schema(value_type = Option<Object>)]
        audio: Option<BTreeMap<String, String>>,
        /// Annotations of the text, such as cited pages.
        #[schema(value_type = Option<Vec<Value>>)]
        annotations: Option<Vec<Value>>,
        /// Older form of `tool_calls`.
        #[deprecated]
        function_call: Option<CalledFunction>,
    },
    /// The result of a function that the model called.
    #[schema(title = "ToolMessage")]
    Tool {
        content: ChatContent,
        /// Id of the call with this result.
        tool_call_id: String,
        /// The name of the function.
        name: Option<String>,
    },
    /// Older form of a `tool` message.
    #[schema(title = "FunctionMessage")]
    Function {
        content: Option<String>,
        /// The name of the function.
        name: String,
    },
}

/// A string, or a list of parts.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ChatContent {
    Text(String),
    Parts(Vec<ChatContentPart>),
}

/// A part of a message. Images, audio, video and files are sent in the request, as base64 or a `data:` URL. The pool never fetches
/// a URL. The embedded engine accepts only text.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChatContentPart {
    #[schema(title = "TextPart")]
    Text {
        text: String,
        /// A caching hint without effect.
        #[schema(value_type = Option<Object>)]
        cache_control: Option<BTreeMap<String, String>>,
    },
    #[schema(title = "ImagePart")]
    ImageUrl { image_url: DataUrl },
    #[schema(title = "InputAudioPart")]
    InputAudio { input_audio: InputAudio },
    /// An extension of vLLM and SGLang.
    #[schema(title = "AudioPart")]
    AudioUrl { audio_url: DataUrl },
    /// An extension of vLLM and SGLang.
    #[schema(title = "VideoPart")]
    VideoUrl { video_url: DataUrl },
    #[schema(title = "FilePart")]
    File { file: InputFile },
    /// The model's refusal, in an assistant message.
    #[schema(title = "RefusalPart")]
    Refusal { refusal: String },
}

/// A URL with embedded content.
#[derive(ToSchema)]
pub struct DataUrl {
    /// A `data:` URL, such as `data:image/png;base64,…`.
    #[schema(pattern = "^data:")]
    pub url: String,
    /// Level of detail for an image: `auto`, `low` or `high`.
    pub detail: Option<String>,
}

/// Audio.
#[derive(ToSchema)]
pub struct InputAudio {
    /// Base64 audio data.
    pub data: String,
    /// `wav`, `mp3` or another format that the model reads.
    #[schema(examples("wav"))]
    pub format: String,
}

/// A file.
#[derive(ToSchema)]
pub struct InputFile {
    /// The file as a `data:` URL.
    pub file_data: String,
    pub filename: Option<String>,
}

/// A function or a custom tool that the model called.
#[derive(ToSchema)]
pub struct ChatToolCall {
    /// Id that the `tool` message with the result repeats.
    pub id: Option<String>,
    /// `function` or `custom`.
    #[schema(value_type = Option<String>, examples("function"))]
    pub r#type: Option<String>,
    pub function: Option<CalledFunction>,
    pub custom: Option<CalledCustomTool>,
}

/// The name of a custom tool and its input.
#[derive(ToSchema)]
pub struct CalledCustomTool {
    pub name: String,
    pub input: String,
}

/// The name of a function and its arguments.
#[derive(ToSchema)]
pub struct CalledFunction {
    #[schema(examples("weather"))]
    pub name: String,
    /// A JSON object as a string. Models may produce invalid JSON, so validate it.
    #[schema(examples("{\"city\": \"Ulm\"}"))]
    pub arguments: Option<String>,
}
