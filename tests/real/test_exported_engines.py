"""Hadoop's s3a and Flink, told as exported: what a server counts is what was advised."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.units import KiB, MiB
from tests.programs import printed
from tests.real import provision, servers
from tests.real.exported import (
    ENVIRONMENT,
    PART,
    PATH,
    SIZE,
    advice,
    asserted_parts,
    asserted_ranges,
    exported,
)
from tests.real.fault_proxy import Truth, between

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]  # the first test waits for the builds

_S3A = """
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileRange;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

class Told {
  public static void main(String[] given) throws Exception {
    var there = new Path("s3a://" + given[0] + "/big");
    for (var at = 2; at < given.length; at += 3) {
      var told = new Configuration();
      told.addResource(new FileInputStream(given[at]));
      told.set("fs.s3a.endpoint", given[at + 1]);
      told.set("fs.s3a.endpoint.region", System.getenv("AWS_REGION"));
      told.set("fs.s3a.path.style.access", "true");
      try (var s3 = FileSystem.newInstance(there.toUri(), told)) {
        run(s3, there, given[1], given[at + 2]);
      }
    }
  }

  static void run(FileSystem s3, Path there, String file, String how) throws Exception {
    if (how.equals("copy")) {
      s3.copyFromLocalFile(new Path("file://" + file), there);
      return;
    }
    try (var from = s3.open(there)) {
      if (how.equals("read")) {
        try (var to = new FileOutputStream(file + ".back")) {
          from.transferTo(to);
        }
        return;
      }
      var distance = Long.parseLong(how);
      var ranges = IntStream.range(0, 12).mapToObj(i -> FileRange.createFileRange(i * distance, 1 << 18)).toList();
      from.readVectored(ranges, ByteBuffer::allocate);
      for (var range : ranges) range.getData().get();
    }
  }
}
"""
_FLINK = """
import java.io.FileInputStream;
import java.net.URI;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.core.fs.FileSystem;
import org.apache.flink.core.fs.Path;
import org.apache.flink.fs.s3hadoop.S3FileSystemFactory;

class Told {
  public static void main(String[] given) throws Exception {
    var there = new Path("s3://" + given[0] + "/big");
    for (var at = 2; at < given.length; at += 3) {
      var told = GlobalConfiguration.loadConfiguration(given[at]);
      told.setString("s3.endpoint", given[at + 1]);
      told.setString("s3.endpoint.region", System.getenv("AWS_REGION"));
      told.setString("s3.path.style.access", "true");
      var factory = new S3FileSystemFactory();
      factory.configure(told);
      run(factory.create(there.toUri()), there, given[1], given[at + 2]);
    }
    System.exit(0);
  }

  static void run(FileSystem s3, Path there, String file, String how) throws Exception {
    if (how.equals("skip")) {
      try (var from = s3.open(there)) {
        for (var place : new long[] {0, 1 << 19, 1 << 20, 20 << 20}) {
          from.seek(place);
          from.read(new byte[1000]);
        }
      }
      return;
    }
    try (var from = new FileInputStream(file)) {
      if (how.equals("checkpoint")) {
        try (var to = s3.create(there, FileSystem.WriteMode.OVERWRITE)) {
          from.transferTo(to);
        }
        return;
      }
      var to = s3.createRecoverableWriter().open(there);
      from.transferTo(to);
      to.closeForCommit().commit();
    }
  }
}
"""


def truths_of(
    client: tuple[str, Path], folder: Path, steps: list[tuple[Path, str]], s3_url: str, bucket: str
) -> list[Truth]:
    """What came by in each step: a configuration, and what is done with it. One program with its jars does them all."""
    (source, jars), program, file = client, folder / "Told.java", folder / "big"
    program.write_text(source)
    file.write_bytes(bytes(SIZE))
    with contextlib.ExitStack() as stack:
        ways = [stack.enter_context(between(PATH, s3_url)) for _ in steps]
        words = [word for (told, how), (url, _) in zip(steps, ways, strict=True) for word in (told, url, how)]
        command = ["java", *servers.JAVA_OPTIONS, "-cp", f"{jars}/*", program, bucket, file, *words]
        printed(command, env=ENVIRONMENT)
        return [proxy.truth for _, proxy in ways]


def test_s3a_sends_and_reads_as_advised(s3_url: str, bucket: str, tmp_path: Path) -> None:
    """A local file in parts, blocks that are fetched ahead, and vectored reads, of which neighbours share a request."""
    reading = {"read_ahead_bytes": 16 * MiB, "block_size_bytes": 2 * MiB, "coalesced_gap_bytes": 512 * KiB}
    blocks = advice("s3_download", 4, 4 * MiB, **reading)
    ranges = advice("s3_download", 4, MiB, **reading)
    ranges["demand"]["access"] = "random"
    up, down, here_and_there = (tmp_path / f"{name}.xml" for name in ("up", "down", "random"))
    for file, target, document in (
        (up, "hadoop-s3a", advice("s3_upload", 3, PART)),
        (down, "hadoop-s3a-download", blocks),
        (here_and_there, "hadoop-s3a-download", ranges),
    ):
        file.write_text(f"<configuration>{''.join(exported(target, document))}</configuration>")
    steps = [(up, "copy"), (down, "read"), (here_and_there, str(512 * KiB)), (here_and_there, str(3 * MiB))]
    sent, read, near, far = truths_of((_S3A, provision.hadoop()), tmp_path, steps, s3_url, bucket)
    asserted_parts(sent, 3)
    asserted_ranges(read, 11, 4)
    assert (tmp_path / "big.back").read_bytes() == bytes(SIZE)
    assert near.counts["GetObject"] == 3  # of four ranges each, which with their gaps are no more than 2 MiB
    asserted_ranges(far, 12, 4)


def test_flink_sends_and_reads_as_advised(s3_url: str, bucket: str, tmp_path: Path) -> None:
    """Its own writer and the streams of checkpoints, which are s3a's; a gap that is cheaper read than left out is."""
    reading = advice("s3_download", 4, 4 * MiB, coalesced_gap_bytes=MiB)
    up, down = tmp_path / "up", tmp_path / "down"
    for folder, target, document in (
        (up, "flink", advice("s3_upload", 3, PART)),
        (down, "flink-download", reading),
    ):
        folder.mkdir()
        (folder / "config.yaml").write_text("\n".join(exported(target, document)))
    steps = [(up, "write"), (up, "checkpoint"), (down, "skip")]
    written, checkpoint, read = truths_of((_FLINK, provision.flink()), tmp_path, steps, s3_url, bucket)
    asserted_parts(written, 3)
    asserted_parts(checkpoint, 3)
    assert read.counts["asked"] == 3  # how large it is, from the beginning on, and from 20 MiB on
