//! The messages of a chat, and the parts of their contents.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// One message of a conversation.
#[derive(ToSchema)]
#[serde(tag = "role", rename_all = "snake_case")]
pub enum ChatMessage {
    /// Instructions for the whole conversation.
    #[schema(title = "SystemMessage")]
    System {
        content: ChatContent,
        /// The name of the author.
        name: Option<String>,
    },
    /// The newer name of `system`.
    #[schema(title = "DeveloperMessage")]
    Developer {
        content: ChatContent,
        /// The name of the author.
        name: Option<String>,
    },
    /// What the user says.
    #[schema(title = "UserMessage")]
    User {
        content: ChatContent,
        /// The name of the author.
        name: Option<String>,
    },
    /// An earlier message of the model. An answer of this API can be sent back unchanged.
    #[schema(title = "AssistantMessage")]
    Assistant {
        content: Option<ChatContent>,
        /// The name of the author.
        name: Option<String>,
        /// Why the model refused, if it did.
        refusal: Option<String>,
        /// The functions that the model called. Each call needs a `tool` message with its result.
        tool_calls: Option<Vec<ChatToolCall>>,
        /// What the model reasoned before this answer. Its chat template decides whether it sees this again.
        reasoning_content: Option<String>,
        /// The same under the name that some engines use.
        reasoning: Option<String>,
        /// Where the answer was spoken: the id of the sound.
        #[schema(value_type = Option<Object>)]
        audio: Option<BTreeMap<String, String>>,
        /// Notes on the text, such as the pages that it cites.
        #[schema(value_type = Option<Vec<Value>>)]
        annotations: Option<Vec<Value>>,
        /// The older form of `tool_calls`.
        #[deprecated]
        function_call: Option<CalledFunction>,
    },
    /// The result of a function that the model called.
    #[schema(title = "ToolMessage")]
    Tool {
        content: ChatContent,
        /// The id of the call that this message answers.
        tool_call_id: String,
        /// The name of the function.
        name: Option<String>,
    },
    /// The older form of a `tool` message.
    #[schema(title = "FunctionMessage")]
    Function {
        content: Option<String>,
        /// The name of the function.
        name: String,
    },
}

/// A text, or a list of parts.
#[derive(ToSchema)]
#[serde(untagged)]
pub enum ChatContent {
    Text(String),
    Parts(Vec<ChatContentPart>),
}

/// One part of a message. Pictures, sounds, videos and files are part of the request, as base64 or a `data:` URL. The
/// pool never fetches a URL. The embedded engine accepts text only.
#[derive(ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChatContentPart {
    #[schema(title = "TextPart")]
    Text {
        text: String,
        /// A hint for caches, which has no effect here.
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
    /// Why the model refused, in a message of the assistant.
    #[schema(title = "RefusalPart")]
    Refusal { refusal: String },
}

/// The address of a content that is part of the request.
#[derive(ToSchema)]
pub struct DataUrl {
    /// A `data:` URL, such as `data:image/png;base64,…`.
    #[schema(pattern = "^data:")]
    pub url: String,
    /// How closely the model looks at a picture: `auto`, `low` or `high`.
    pub detail: Option<String>,
}

/// A sound.
#[derive(ToSchema)]
pub struct InputAudio {
    /// The sound in base64.
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
    /// The `tool` message with the result repeats this id.
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
    /// A JSON object as text. A model may write invalid JSON: check it.
    #[schema(examples("{\"city\": \"Ulm\"}"))]
    pub arguments: Option<String>,
}
