//! Decodes a recording of any format into mono samples, packet by packet.
//!
//! Files are not trusted: a length in a header is not believed, a damaged packet is passed over, and a file that ends early ends the
//! recording there.

use super::opus::{OPUS_RATE, OpusTrack};
use std::io::{Error as IoError, ErrorKind};
use symphonia::core::audio::Channels;
use symphonia::core::codecs::audio::well_known::CODEC_ID_OPUS;
use symphonia::core::codecs::audio::{AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::{MediaSource, MediaSourceStream};
use symphonia::core::meta::MetadataOptions;
use symphonia::core::packet::Packet;
use symphonia::default::{get_codecs, get_probe};

/// The formats, for messages.
pub(super) const FORMATS: &str = "wav, mp3, flac, ogg (opus, vorbis), m4a and mp4 (aac, alac, opus), aiff, and mkv and webm (opus, vorbis, aac, flac, mp3)";

/// Damaged packets in a row after which the rest is not tried.
const DAMAGED_MAX: usize = 512;
/// Most channels of a recording.
const CHANNELS_MAX: usize = 64;

/// Decodes the recording's first audio track.
pub(super) struct AudioFile {
    format: Box<dyn FormatReader>,
    decoder: PacketDecoder,
    track: u32,
    interleaved: Vec<f32>,
    damaged: usize,
}

impl AudioFile {
    /// Finds the format by the bytes; the name may give a hint.
    ///
    /// # Errors
    /// If the format is unknown, or nothing in the file is a recording.
    pub fn open(source: Box<dyn MediaSource>, name: Option<&str>) -> Result<Self, String> {
        let mut hint = Hint::new();
        if let Some((_, extension)) = name.and_then(|name| name.rsplit_once('.')) {
            hint.with_extension(extension);
        }
        let stream = MediaSourceStream::new(source, Default::default());
        let (options, metadata) = (FormatOptions::default(), MetadataOptions::default());
        let format = get_probe().probe(&hint, stream, options, metadata);
        let format = format.map_err(|error| {
            format!(
                "it is not a recording in a known format ({}); known are {FORMATS}",
                shown(&error)
            )
        })?;
        let (track, decoder) = decoder_of(format.as_ref())?;
        Ok(Self {
            format,
            decoder,
            track,
            interleaved: Vec::new(),
            damaged: 0,
        })
    }

    /// Decodes the next packet and replaces `samples` with the mean of its channels. Returns the packet's rate, or `None` at the
    /// end.
    ///
    /// # Errors
    /// If the rest cannot be decoded.
    pub fn next(&mut self, samples: &mut Vec<f32>) -> Result<Option<u32>, String> {
        loop {
            let packet = match self.format.next_packet() {
                Ok(Some(packet)) => packet,
                Ok(None) => return Ok(None),
                // Another recording follows in the same file.
                Err(Error::ResetRequired) => {
                    (self.track, self.decoder) = decoder_of(self.format.as_ref())?;
                    continue;
                }
                Err(Error::IoError(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Ok(None);
                }
                Err(Error::DecodeError(_)) if self.damaged < DAMAGED_MAX => {
                    self.damaged += 1;
                    continue;
                }
                // The recording ends with the packets before.
                Err(Error::DecodeError(_) | Error::LimitError(_)) => return Ok(None),
                Err(error) => return Err(format!("it cannot be decoded ({})", shown(&error))),
            };
            if packet.track_id != self.track {
                continue;
            }
            let decoded = self.decoder.decode(&packet, &mut self.interleaved);
            let (rate, channels) = match decoded {
                Ok(form) => form,
                Err(Error::DecodeError(_) | Error::IoError(_)) => {
                    self.damaged += 1;
                    if self.damaged > DAMAGED_MAX {
                        return Ok(None);
                    }
                    continue;
                }
                Err(Error::ResetRequired) => {
                    self.decoder.reset();
                    continue;
                }
                Err(error) => return Err(format!("it cannot be decoded ({})", shown(&error))),
            };
            if channels == 0 || channels > CHANNELS_MAX {
                return Err(format!(
                    "it has {channels} channels; recordings may have 1 to {CHANNELS_MAX}"
                ));
            }
            self.damaged = 0;
            samples.clear();
            let frames = self.interleaved.chunks_exact(channels);
            // A sample that is not finite would spread over its window.
            let finite = |sample: &f32| if sample.is_finite() { *sample } else { 0.0 };
            samples.extend(frames.map(|frame| {
                let sum: f32 = frame.iter().map(finite).sum();
                (sum / channels as f32).clamp(-8.0, 8.0)
            }));
            if !samples.is_empty() {
                return Ok(Some(rate));
            }
        }
    }
}

/// The decoder of a track.
enum PacketDecoder {
    Opus(Box<OpusTrack>),
    Other(Box<dyn AudioDecoder>),
}

impl PacketDecoder {
    /// Replaces `interleaved` with the samples of a packet. Returns their rate and the number of channels.
    fn decode(
        &mut self,
        packet: &Packet,
        interleaved: &mut Vec<f32>,
    ) -> Result<(u32, usize), Error> {
        match self {
            Self::Opus(track) => {
                let samples = track.decode(&packet.data, packet.trim_end.get());
                let samples = samples.ok_or(Error::DecodeError("the packet is damaged"))?;
                interleaved.clear();
                interleaved.extend_from_slice(samples);
                Ok((OPUS_RATE, track.channels()))
            }
            Self::Other(decoder) => {
                let buffer = decoder.decode(packet)?;
                buffer.copy_to_vec_interleaved(interleaved);
                let form = buffer.spec();
                Ok((form.rate(), form.channels().count()))
            }
        }
    }

    fn reset(&mut self) {
        match self {
            Self::Opus(track) => track.reset(),
            Self::Other(decoder) => decoder.reset(),
        }
    }
}

fn decoder_of(format: &dyn FormatReader) -> Result<(u32, PacketDecoder), String> {
    let has_sound = |track: &&Track| {
        let parameters = track.codec_params.as_ref();
        parameters.is_some_and(|parameters| parameters.audio().is_some())
    };
    let track = format.default_track(TrackType::Audio).filter(has_sound);
    let track = track.or_else(|| format.tracks().iter().find(has_sound));
    let parameters = track.and_then(|track| track.codec_params.as_ref()?.audio());
    let (Some(track), Some(parameters)) = (track, parameters) else {
        return Err(format!(
            "it has no audio track that can be decoded; known are {FORMATS}"
        ));
    };
    if parameters.codec == CODEC_ID_OPUS {
        let channels = parameters.channels.as_ref().map(Channels::count);
        let opus = OpusTrack::new(parameters.extra_data.as_deref(), channels)?;
        return Ok((track.id, PacketDecoder::Opus(Box::new(opus))));
    }
    let options = AudioDecoderOptions::default();
    let decoder = get_codecs().make_audio_decoder(parameters, &options);
    let decoder = decoder.map_err(|error| {
        format!(
            "its audio has the codec number {}, which cannot be decoded ({}); convert it: known are {FORMATS}",
            parameters.codec,
            shown(&error)
        )
    })?;
    Ok((track.id, PacketDecoder::Other(decoder)))
}

/// A decoder's message. The end of the file while a header is read has its own.
fn shown(error: &Error) -> String {
    match error {
        Error::IoError(error) if error.kind() == ErrorKind::UnexpectedEof => {
            "it ends before its first sample".to_owned()
        }
        Error::IoError(error) => describe(error),
        other => other.to_string(),
    }
}

fn describe(error: &IoError) -> String {
    crate::error::one_line(error)
}
