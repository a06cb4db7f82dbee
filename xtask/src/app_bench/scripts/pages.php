<?php
// Makes and drops arrays, objects, strings and JSON, sorts them, and matches them by regular
// expressions.

declare(strict_types=1);

mt_srand(20);

function word(): string
{
    $word = '';
    for ($left = mt_rand(2, 16); $left > 0; $left--) {
        $word .= chr(mt_rand(97, 108));
    }
    return $word;
}

final class Node
{
    public ?Node $left = null;
    public ?Node $right = null;

    public function __construct(public int $key, public string $word)
    {
    }

    public function insert(int $key, string $word): void
    {
        $node = $this;
        while ($node->key !== $key) {
            $side = $key < $node->key ? 'left' : 'right';
            $node->$side ??= new Node($key, $word);
            $node = $node->$side;
        }
    }

    public function walk(): Generator
    {
        if ($this->left) {
            yield from $this->left->walk();
        }
        yield $this->key => $this->word;
        if ($this->right) {
            yield from $this->right->walk();
        }
    }
}

$count = (int) $argv[1];

for ($turn = 0; $turn < 3; $turn++) {
    $words = [];
    for ($number = 0; $number < $count; $number++) {
        $words[] = word();
    }

    $places = [];
    foreach ($words as $place => $word) {
        $places[$word][] = $place;
    }
    uksort($places, fn ($a, $b) => count($places[$b]) <=> count($places[$a]) ?: strcmp($a, $b));
    echo 'often ', implode(' ', array_slice(array_keys($places), 0, 8)), "\n";
    $places = array_filter($places, fn ($list) => count($list) % 2 === 1);
    echo 'left ', count($places), ' ', md5(serialize($places)), "\n";

    $text = implode(' ', $words);
    $marked = preg_replace_callback('/[b-d]{2,}/', fn ($m) => '<' . strtoupper($m[0]) . '>', $text);
    preg_match_all('/\b(\w*?)([aei]+)(\w*)\b/', $text, $found, PREG_SET_ORDER);
    echo 'marked ', strlen($marked), ' ', count($found), ' ', md5(json_encode($found)), "\n";

    $rows = array_map(fn ($word) => [
        'key' => $word,
        'turned' => strrev($word),
        'parts' => explode('e', $word),
    ], $words);
    usort($rows, fn ($a, $b) => $a['turned'] <=> $b['turned'] ?: $a['key'] <=> $b['key']);
    $json = json_encode($rows, JSON_PRETTY_PRINT);
    echo 'rows ', strlen($json), ' ', json_decode($json, true) === $rows ? 'equal' : 'differ', "\n";

    $root = new Node($count, 'root');
    foreach ($words as $word) {
        $root->insert(mt_rand(0, 2 * $count), $word);
    }
    $sum = 0;
    foreach ($root->walk() as $key => $word) {
        $sum = ($sum * 31 + $key + strlen($word)) % 1000003;
    }
    echo "tree $sum\n";

    ob_start();
    foreach (array_slice($rows, 0, intdiv($count, 4)) as $row) {
        printf("<li title=\"%s\">%s</li>\n", htmlspecialchars($row['key']), ucfirst($row['turned']));
    }
    $page = ob_get_clean();
    $blocks = [];
    for ($number = 0; $number < intdiv($count, 8); $number++) {
        $blocks[$number % 50] = str_repeat(chr($number % 256), mt_rand(1, 80_000));
    }
    echo 'page ', strlen($page), ' ', md5($page), ' ', md5(implode('', $blocks)), "\n";
}
