//! GGUF files built by hand, with holes in place of large tensors.

use std::path::Path;

/// A GGUF file built by hand.
#[derive(Default)]
pub struct File {
    pub version: Option<u32>,
    pub pairs: Vec<u8>,
    pair_count: u64,
    tensors: Vec<(String, Vec<u64>, u32, u64)>,
    offset: u64,
    pub pair_claim: Option<u64>,
    pub tensor_claim: Option<u64>,
}

fn text(into: &mut Vec<u8>, text: &str) {
    into.extend((text.len() as u64).to_le_bytes());
    into.extend(text.as_bytes());
}

impl File {
    pub fn key(&mut self, key: &str, kind: u32) {
        text(&mut self.pairs, key);
        self.pairs.extend(kind.to_le_bytes());
        self.pair_count += 1;
    }

    pub fn number(mut self, key: &str, value: u32) -> File {
        self.key(key, 4);
        self.pairs.extend(value.to_le_bytes());
        self
    }

    pub fn word(mut self, key: &str, value: &str) -> File {
        self.key(key, 8);
        text(&mut self.pairs, value);
        self
    }

    pub fn list(mut self, key: &str, values: &[u32]) -> File {
        self.key(key, 9);
        self.pairs.extend(4_u32.to_le_bytes());
        self.pairs.extend((values.len() as u64).to_le_bytes());
        for value in values {
            self.pairs.extend(value.to_le_bytes());
        }
        self
    }

    pub fn flags(mut self, key: &str, values: &[bool]) -> File {
        self.key(key, 9);
        self.pairs.extend(7_u32.to_le_bytes());
        self.pairs.extend((values.len() as u64).to_le_bytes());
        self.pairs
            .extend(values.iter().map(|value| u8::from(*value)));
        self
    }

    pub fn words(mut self, key: &str, values: &[&str]) -> File {
        self.key(key, 9);
        self.pairs.extend(8_u32.to_le_bytes());
        self.pairs.extend((values.len() as u64).to_le_bytes());
        for value in values {
            text(&mut self.pairs, value);
        }
        self
    }

    pub fn fraction(mut self, key: &str, value: f32) -> File {
        self.key(key, 6);
        self.pairs.extend(value.to_le_bytes());
        self
    }

    /// Adds a tensor of this format.
    pub fn tensor(mut self, name: &str, shape: &[u64], format: u32, bytes: u64) -> File {
        self.tensors
            .push((name.to_owned(), shape.to_vec(), format, self.offset));
        self.offset = (self.offset + bytes).next_multiple_of(32);
        self
    }

    /// The file, with zeros as tensor data.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = self.header();
        file.resize(file.len() + self.offset as usize, 0);
        file
    }

    /// The file up to its tensor data.
    fn header(&self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(self.version.unwrap_or(3).to_le_bytes());
        file.extend(
            self.tensor_claim
                .unwrap_or(self.tensors.len() as u64)
                .to_le_bytes(),
        );
        file.extend(self.pair_claim.unwrap_or(self.pair_count).to_le_bytes());
        file.extend(&self.pairs);
        for (name, shape, format, offset) in &self.tensors {
            text(&mut file, name);
            file.extend((shape.len() as u32).to_le_bytes());
            for side in shape {
                file.extend(side.to_le_bytes());
            }
            file.extend(format.to_le_bytes());
            file.extend(offset.to_le_bytes());
        }
        file.resize(file.len().next_multiple_of(32), 0);
        file
    }

    /// Writes the file with a hole in place of its tensor data, which takes no space on disk.
    pub fn write_sparse(&self, path: &Path) {
        let header = self.header();
        std::fs::write(path, &header).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(header.len() as u64 + self.offset).unwrap();
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.bytes()).unwrap();
    }
}
