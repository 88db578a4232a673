// grpc-js from Node.js: loads our .proto files, asks for metadata, infers, provokes an error; prints JSON.
"use strict";

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, protoRoot] = process.argv.slice(2);
const definition = loader.loadSync("headrace_proto/v1/inference.proto", {
  includeDirs: [protoRoot],
  keepCase: true,
  longs: String,
});
const { GRPCInferenceService } = grpc.loadPackageDefinition(definition).inference;
const client = new GRPCInferenceService(address, grpc.credentials.createInsecure());

const call = (method, request) =>
  new Promise((resolve, reject) => {
    const deadline = new Date(Date.now() + 10000);
    client[method](request, { deadline }, (error, reply) => (error ? reject(error) : resolve(reply)));
  });

async function main() {
  const values = Float32Array.from([1.5, -2.25, 0, 3e38]);
  const request = {
    model_name: "identity_fp32",
    id: "js",
    inputs: [{ name: "x", datatype: "FP32", shape: [1, values.length] }],
    raw_input_contents: [Buffer.from(values.buffer)],
  };
  const reply = await call("ModelInfer", request);
  const raw = reply.raw_output_contents[0];
  const got = Array.from(new Float32Array(raw.buffer.slice(raw.byteOffset, raw.byteOffset + raw.length)));
  const typed = await call("ModelInfer", {
    model_name: "identity_int64",
    inputs: [{ name: "x", datatype: "INT64", shape: [1, 2], contents: { int64_contents: ["-9007199254740993", "7"] } }],
  });
  const error = await call("ModelInfer", { model_name: "nothing" }).catch((failure) => failure);
  const batch = await Promise.all(Array.from({ length: 32 }, () => call("ModelInfer", request)));
  console.log(
    JSON.stringify({
      ready: (await call("ServerReady", {})).ready,
      metadata: (await call("ModelMetadata", { name: "pair" })).inputs.map((input) => input.name),
      id: reply.id,
      equal: got.every((value, index) => value === values[index]) && got.length === values.length,
      shape: reply.outputs[0].shape,
      int64: [typed.raw_output_contents[0].readBigInt64LE(0), typed.raw_output_contents[0].readBigInt64LE(8)].map(String),
      batch: batch.length,
      error: error.code,
    })
  );
  client.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
