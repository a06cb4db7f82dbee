// Uses buffers, archives, maps, JSON, texts and typed arrays.

'use strict';

const { createHash } = require('crypto');
const { promisify } = require('util');
const zlib = require('zlib');

const count = Number(process.argv[2]);
const digest = createHash('sha256');

let state = 20;

function chance(limit) {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >> 8) % limit;
}

function word() {
    let letters = '';
    for (let left = 2 + chance(12); left > 0; left--) letters += 'abcdefghijkl'[chance(12)];
    return letters;
}

function tell(what, value) {
    const line = `${what} ${JSON.stringify(value)}`;
    digest.update(line);
    console.log(line.slice(0, 100));
}

function buffers() {
    const kept = new Array(64).fill(Buffer.alloc(0));
    let sum = 0;
    for (let number = 0; number < count; number++) {
        const buffer = Buffer.alloc(16 + chance(1 << (8 + number % 9)), number & 255);
        buffer.writeUInt32LE(number, 4);
        sum = (sum * 31 + buffer.readUInt32LE(2) + buffer.length) % 1000003;
        kept[chance(64)] = buffer;
    }
    tell('buffers', [sum, createHash('sha256').update(Buffer.concat(kept)).digest('hex')]);
}

function documents() {
    const made = [];
    for (let number = 0; number < count; number++) {
        made.push({ id: number, tags: [word(), word()], at: { x: number / 7, y: word() } });
    }
    const text = JSON.stringify(made);
    const again = JSON.parse(text);
    again.sort((a, b) => (a.at.y < b.at.y ? -1 : a.at.y > b.at.y ? 1 : a.id - b.id));
    tell('documents', [text.length, again[0], again[again.length - 1]]);
    return Buffer.from(text);
}

function maps() {
    const places = new Map();
    for (let number = 0; number < count * 2; number++) {
        const key = word().slice(0, 4);
        if (chance(3) === 0) places.delete(key);
        else places.set(key, (places.get(key) || []).concat(number));
    }
    const lengths = [...places].map(([key, list]) => `${key}${list.length}`).sort();
    tell('maps', [places.size, lengths.slice(0, 5)]);
}

function texts() {
    const text = Array.from({ length: count }, word).join(' ');
    const turned = text.replace(/([b-d]+)([aei]+)/g, (_, one, two) => two + one.toUpperCase());
    tell('texts', [turned.length, turned.split(/[^a-z]+/).length, turned.slice(0, 60)]);
}

async function archives(text) {
    const parts = [];
    for (let at = 0; at < text.length; at += 50_000) parts.push(text.subarray(at, at + 50_000));
    // These run in the threads of a pool, some at once.
    const packed = await Promise.all(parts.map((part) => promisify(zlib.gzip)(part)));
    const again = await Promise.all(packed.map((part) => promisify(zlib.gunzip)(part)));
    tell('archives', Buffer.concat(again).equals(text));
    const small = zlib.brotliCompressSync(parts[0], {
        params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 5 },
    });
    tell('brotli', zlib.brotliDecompressSync(small).equals(parts[0]));
}

async function main() {
    for (let turn = 0; turn < 3; turn++) {
        buffers();
        const text = documents();
        maps();
        texts();
        await archives(text);
    }
    console.log(digest.digest('hex'));
}

main();
