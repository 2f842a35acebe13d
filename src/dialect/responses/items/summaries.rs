//! Reads items that stand for the text of earlier turns: reasoning, and the summary of a compacted conversation.

use serde_json::json;

use super::{Chat, join};
use crate::fields::RequestFields;
use api_types::error::Failure;

impl Chat<'_> {
    /// Reads the summary of a compacted conversation.
    pub(super) fn compaction(&mut self, mut item: RequestFields) -> Result<(), Failure> {
        let sealed = item.need_text("encrypted_content")?;
        let summary = self.sealer.open(&sealed).ok_or_else(|| {
            item.wrong(
                "encrypted_content",
                "from POST /v1/responses/compact of this server, for the same key",
            )
        })?;
        item.drop_rest(self.ignored);
        self.user(json!(format!(
            "<summary of the earlier conversation>\n{summary}\n</summary>"
        )));
        Ok(())
    }

    /// Reads reasoning of an earlier turn: sealed by this pool for this key, or plain text. Other reasoning is unreadable and is
    /// dropped.
    pub(super) fn reasoning(&mut self, mut item: RequestFields) -> Result<(), Failure> {
        let summary = item.list("summary")?.unwrap_or_default();
        let at = item.path("content");
        let parts = item.list("content")?.unwrap_or_default();
        let sealed = item.text("encrypted_content")?;
        item.drop_rest(self.ignored);
        let mut texts = Vec::new();
        for (nth, part) in parts.into_iter().enumerate() {
            let mut part = RequestFields::new(format!("{at}[{nth}]"), part)?;
            part.text("type")?;
            texts.push(part.need_text("text")?);
            part.drop_rest(self.ignored);
        }
        let opened = sealed.as_deref().map(|sealed| self.sealer.open(sealed));
        let text = match opened {
            Some(Some(text)) => text,
            Some(None) => {
                self.ignored.add("input.reasoning.encrypted_content");
                texts.join("\n")
            }
            None if texts.is_empty() && !summary.is_empty() => {
                self.ignored.add("input.reasoning.summary");
                String::new()
            }
            None => texts.join("\n"),
        };
        if !text.is_empty() {
            let mut thought = json!(self.thought.take());
            join(&mut thought, json!(text));
            self.thought = thought.as_str().map(str::to_owned);
        }
        Ok(())
    }
}
