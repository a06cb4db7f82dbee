-- Fills tables, and reads them with joins, sorts, aggregates, functions, texts and documents.
-- SCALE is replaced by the number of rows of the larger table.
set client_min_messages = warning;
set work_mem = '32MB';
create table product (id int primary key, name text, tags jsonb);
create table sale (id int, product int, amount int, note text);
insert into product
    select i, 'product ' || md5(i::text),
        jsonb_build_object('group', i % 17, 'words', array[md5(i::text), md5((-i)::text)])
    from generate_series(0, SCALE / 20) as i;
insert into sale
    select i, i * 7919::bigint % (SCALE / 20), i * 104729::bigint % 997, repeat(md5(i::text), i % 5)
    from generate_series(1, SCALE) as i;
create index on sale (product, amount);
create index on product using gin (tags);
analyze;

select name, count(*), sum(amount), max(note) from sale join product on product.id = sale.product
    group by name order by sum(amount) desc, name limit 5;
select tags->'group', sum(amount), count(distinct note)
    from sale join product on product.id = sale.product group by 1 order by 1;
select md5(string_agg(note, ',' order by note, id)) from sale;
select md5(string_agg(key || value, ',' order by key, value, id))
    from product, jsonb_each_text(tags);
select count(*) from product where tags @> '{"group": 3}';
select count(*), sum(length(regexp_replace(note, '[a-f]+([0-9])', '<\1>', 'g'))) from sale
    where id % 4 = 0;
with ranked as (
    select product, amount, rank() over (partition by product order by amount desc, id) as place
    from sale)
select place, sum(amount) from ranked where place <= 5 group by place order by place;
with recursive chain (id, depth) as (
    select 1, 0 union all select (id * 31 + 7) % 9973, depth + 1 from chain where depth < SCALE / 10)
select count(distinct id), max(id) from chain;

create function digits(number int) returns int language plpgsql as $$
declare
    sum int := 0;
    text text := number::text;
begin
    for i in 1 .. length(text) loop
        sum := sum + substr(text, i, 1)::int;
    end loop;
    return sum;
end $$;
select sum(digits(id)) from sale where id % 5 = 0;
do $$
begin
    for turn in 1 .. SCALE / 100 loop
        execute format('create temporary table part%s as select * from sale where amount = %s',
            turn, turn);
        execute format('drop table part%s', turn);
    end loop;
end $$;
update sale set note = upper(note) where amount < 100;
select md5(string_agg(note, ',' order by id)) from sale where note is not null;

-- What pgbench left. Its clients change rows in any order, but each makes the same changes.
select count(*), sum(abalance), md5(string_agg(abalance::text, ',' order by aid))
    from pgbench_accounts;
select sum(bbalance) from pgbench_branches;
select count(*), md5(string_agg(tbalance::text, ',' order by tid)) from pgbench_tellers;
select count(*), md5(string_agg(format('%s %s %s %s', tid, bid, aid, delta), ','
        order by tid, bid, aid, delta))
    from pgbench_history;
